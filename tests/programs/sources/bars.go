package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cheggaaa/pb/v3"
	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/pterm/pterm"
	"github.com/schollz/progressbar/v3"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

func main() {
	switch os.Args[1] {
	case "mpb":
		p := mpb.New(mpb.WithWidth(60))
		for n := 0; n < 3; n++ {
			b := p.AddBar(30, mpb.PrependDecorators(decor.Name(fmt.Sprintf("bar %d", n))), mpb.AppendDecorators(decor.Percentage()))
			go func(n int) {
				for i := 0; i < 30; i++ {
					time.Sleep(time.Duration(10+n*15) * time.Millisecond)
					b.Increment()
					if i%10 == 0 {
						fmt.Fprintf(p, "bar %d at %d\n", n, i)
					}
				}
			}(n)
		}
		p.Wait()
	case "schollz":
		b := progressbar.Default(100, "reading")
		for i := 0; i < 100; i++ {
			b.Add(1)
			time.Sleep(5 * time.Millisecond)
		}
		b = progressbar.NewOptions(-1, progressbar.OptionSpinnerType(14), progressbar.OptionClearOnFinish())
		for i := 0; i < 50; i++ {
			b.Add(1)
			time.Sleep(10 * time.Millisecond)
		}
		b.Finish()
	case "pb":
		b := pb.StartNew(100)
		for i := 0; i < 100; i++ {
			b.Increment()
			time.Sleep(10 * time.Millisecond)
		}
		b.Finish()
		pool, err := pb.StartPool(pb.New(20).SetTemplateString(`one {{bar .}} {{percent .}}`), pb.New(30).SetTemplateString(`two {{bar .}} {{percent .}}`))
		if err != nil {
			panic(err)
		}
		time.Sleep(500 * time.Millisecond)
		pool.Stop()
	case "pterm":
		bar, _ := pterm.DefaultProgressbar.WithTotal(20).WithTitle("Downloading").Start()
		for i := 0; i < 20; i++ {
			if i%5 == 0 {
				pterm.Success.Println("Got", i)
			}
			bar.Increment()
			time.Sleep(20 * time.Millisecond)
		}
		s, _ := pterm.DefaultSpinner.Start("spinning")
		time.Sleep(600 * time.Millisecond)
		s.Success("spun")
		area, _ := pterm.DefaultArea.Start()
		for i := 0; i < 5; i++ {
			area.Update(pterm.DefaultBox.Sprintf("area\nof lines %d", i))
			time.Sleep(50 * time.Millisecond)
		}
		area.Stop()
	case "docker":
		var text strings.Builder
		ids := []string{"a1b2c3d4e5f6", "0f1e2d3c4b5a", "112233445566", "99aabbccddee"}
		text.WriteString(`{"status":"Pulling from library/python","id":"3.11"}` + "\n")
		for _, id := range ids {
			fmt.Fprintf(&text, `{"status":"Pulling fs layer","progressDetail":{},"id":"%s"}`+"\n", id)
		}
		for i := 1; i <= 10; i++ {
			for n, id := range ids {
				if i <= 3+2*n {
					fmt.Fprintf(&text, `{"status":"Downloading","progressDetail":{"current":%d,"total":%d},"id":"%s"}`+"\n", i*1000000, (3+2*n)*1000000, id)
				}
			}
		}
		for _, id := range ids {
			fmt.Fprintf(&text, `{"status":"Download complete","progressDetail":{},"id":"%s"}`+"\n", id)
		}
		for i, id := range ids {
			for j := 0; j < 3; j++ {
				fmt.Fprintf(&text, `{"status":"Extracting","progressDetail":{"current":%d,"total":9000000},"id":"%s"}`+"\n", (j+i)*1000000, id)
			}
			fmt.Fprintf(&text, `{"status":"Pull complete","progressDetail":{},"id":"%s"}`+"\n", id)
		}
		text.WriteString(`{"status":"Digest: sha256:00112233445566778899aabbccddeeff"}` + "\n" + `{"status":"Status: Downloaded newer image for python:3.11"}` + "\n")
		jsonmessage.DisplayJSONMessagesStream(strings.NewReader(text.String()), os.Stdout, 1, true, nil)
	}
}
