use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::{thread, time::Duration};
fn main() {
    let many = MultiProgress::with_draw_target(indicatif::ProgressDrawTarget::stdout());
    let style = ProgressStyle::with_template("{spinner:.green} [{elapsed}] {bar:40.cyan/blue} {pos:>7}/{len:7} {msg}").unwrap();
    let bars: Vec<_> = (0..3).map(|n| { let b = many.add(ProgressBar::new(30)); b.set_style(style.clone()); b.set_message(format!("item {n}")); b }).collect();
    for i in 0..30 {
        for b in &bars { b.inc(1); }
        if i % 8 == 0 { many.println(format!("at {i}")).unwrap(); }
        thread::sleep(Duration::from_millis(20));
    }
    for (n, b) in bars.iter().enumerate() { if n == 1 { b.finish_and_clear() } else { b.finish_with_message("done") } }
    println!("end");
}
