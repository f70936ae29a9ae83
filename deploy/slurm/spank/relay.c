#include "relay.h"

#include "basics.h"
#include "fault_points.h"
#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    GATHER_BYTES = 16 << 10,      /* since the last silence: that is a flood. Less is handed over at once */
    LEFT_BEHIND_BYTES = 256 << 10, /* of a stream that never falls silent, once CMD is gone */
};
static const int64_t GATHER_NS = 2 * MS_NS; /* in a flood, silence after which streams count as idle */
static const int64_t SINK_NS = 10 * MS_NS;  /* under constant flow the sidecar is sent what there is as often */
static const int64_t FOREVER_NS = 3600 * SEC_NS, CARE_NS = 500 * MS_NS, FINISH_NS = 100 * MS_NS, ORPHAN_NS = SEC_NS;

static unsigned bit_of(const struct channel *channel)
{
    return 1U << (channel->stream - 1);
}

static void say(const struct relay *relay, const char *text)
{
    size_t size = strlen(text);
    struct wire_head head = {.type = WIRE_SAY, .task = relay->task, .size = (uint32_t)size};
    if (relay->keeper >= 0)
        (void)wire_send(relay->keeper, head, text, NULL, 0, 0); /* a line of the node's log, never waited for */
}

/* ---- streams */

static bool is_stopped(const struct relay *relay, const struct channel *channel)
{
    return relay->stopped && !channel->resumed;
}

static void listen_to(struct relay *relay, struct channel *channel)
{
    bool over = channel->at_end || channel->out.gone || channel->closed;
    bool paused = relay->sidecar.paused || is_stopped(relay, channel);
    bool wanted = !(paused || over || channel->blocked || channel_full(channel));
    if (wanted && !channel->listening)
        relay->fresh = true;
    channel->listening = wanted;
}

static void deliver_other(struct relay *relay, struct channel *channel, int64_t now);

static void close_channel(struct relay *relay, struct channel *channel, int64_t now)
{
    if (channel->out.gone == EPIPE && !relay->ended) {
        /* once the pty is closed CMD's write fails with EIO: SIGPIPE first, as a pipe would have
         * it */
        if (relay->cmd_pidfd >= 0)
            (void)syscall(SYS_pidfd_send_signal, relay->cmd_pidfd, SIGPIPE, NULL, 0);
    }
    if (relay->order >= 0) /* closing alone doesn't take it out, as the sidecar may hold it too */
        (void)epoll_ctl(relay->order, EPOLL_CTL_DEL, channel->master, NULL);
    channel_close(channel);
    relay->fresh = true;
    listen_to(relay, channel);
    sidecar_closed(&relay->sidecar, (unsigned)channel->stream);
    deliver_other(relay, channel, now);
}

/* After a channel read or wrote: what follows for the poll and the other channel. */
static void settle(struct relay *relay, struct channel *channel, int64_t now)
{
    if (channel->closed)
        return;
    listen_to(relay, channel);
    if (channel->out.fault && !channel->failure_said) {
        char text[128];
        channel->failure_said = true;
        snprintf(text, sizeof text, "%s can't be written, bytes are missing there: %s",
                 channel->stream == 1 ? "standard output" : "standard error", strerror(channel->out.fault));
        say(relay, text);
    }
    if (channel->out.gone || (channel->at_end && !channel->size))
        close_channel(relay, channel, now);
}

static void deliver(struct relay *relay, struct channel *channel, int64_t now)
{
    if (channel->closed)
        return;
    channel_deliver(channel, now);
    settle(relay, channel, now);
}

/* What was held back for this channel's sake. */
static void deliver_other(struct relay *relay, struct channel *channel, int64_t now)
{
    struct channel *other = channel->other;
    if (channel->line && other && other->size && !other->blocked)
        deliver(relay, other, now);
}

/* Of the streams that became readable since the last call, the index of the one that did so last;
 * -1: that isn't known. A stream that is readable and didn't had become so before. It is the nearest
 * thing to the order in which CMD wrote to both, which the poll's order doesn't tell. */
static int arrived_last(const struct relay *relay)
{
    struct epoll_event events[2];
    int count = relay->order < 0 ? 0 : epoll_wait(relay->order, events, 2, 0);
    return count > 0 ? (int)events[count - 1].data.u32 : -1;
}

/* A poll of it alone, as only that waits for what the kernel has not passed on to the terminal. */
static bool is_readable(const struct channel *channel)
{
    struct pollfd place = {.fd = channel->master, .events = POLLIN};
    return poll(&place, 1, 0) > 0;
}

static void read_channel(struct relay *relay, struct channel *channel, unsigned flags, int64_t now)
{
    const unsigned char *bytes;
    size_t size = channel_read(channel, &bytes, now);
    (void)arrived_last(relay); /* what came while the stream was read tells no order */
    if (size) {
        FAULT_POINT(bytes_counted);
        modes_took(relay->modes, channel->stream, size); /* before anybody can know of these bytes */
        channel_deliver(channel, now);
        FAULT_POINT(bytes_delivered);
        relay->fresh = true;
        relay->burst += size;
        if (relay->sidecar.alive) {
            if (channel->other && channel->other->listening && is_readable(channel->other))
                flags |= bit_of(channel);
            side_data(&relay->sidecar.pipe, (unsigned)channel->stream, bytes, size, flags);
            sidecar_flush_if_full(&relay->sidecar);
        }
    }
    settle(relay, channel, now);
}

/* ---- the loop */

static bool is_over(const struct relay *relay)
{
    return relay->channels[0].closed && relay->channels[1].closed;
}

static void follow_order(struct relay *relay)
{
    relay->order = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; relay->order >= 0 && i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u32 = i};
        if (relay->channels[i].closed || epoll_ctl(relay->order, EPOLL_CTL_ADD, relay->channels[i].master, &event))
            close_fd(&relay->order); /* only one stream, or out of memory */
    }
}

/* No stream had anything to read. */
static void rest(struct relay *relay, int64_t now)
{
    unsigned flags = 0;
    bool untold = relay->fresh;
    /* as the poll knew it: what is delivered may make room for a stream that wasn't asked for */
    for (int i = 0; i < 2; i++)
        if (relay->channels[i].closed || relay->channels[i].listening)
            flags |= bit_of(&relay->channels[i]);
    relay->fresh = false;
    relay->burst = 0;
    for (int i = 0; i < 2; i++) {
        struct channel *channel = &relay->channels[i];
        if (channel->size && !channel->blocked)
            deliver(relay, channel, now); /* held back for the other one, which says nothing */
    }
    side_settle(&relay->sidecar.pipe);
    if (untold && flags && relay->sidecar.alive)
        side_empty(&relay->sidecar.pipe, flags);
}

static void read_ready(struct relay *relay, int64_t now)
{
    struct channel *channels = relay->channels;
    unsigned flags[2] = {0, 0};
    /* before anything is read: reading takes time, in which the other stream may fill */
    for (int i = 0; i < 2; i++) {
        const struct channel *other = &channels[1 - i];
        if (other->closed || (other->listening && !other->ready))
            flags[i] = bit_of(other);
    }
    int first = channels[0].ready && channels[1].ready && arrived_last(relay) == 0;
    for (int k = 0; k < 2; k++) {
        int i = k == 0 ? first : 1 - first;
        if (channels[i].ready && !channels[i].closed)
            read_channel(relay, &channels[i], flags[i], now);
    }
}

static int wait_ms(const struct relay *relay, int64_t wait_ns)
{
    int64_t now = now_ns();
    if (relay->fresh) {
        int64_t soon = relay->burst >= GATHER_BYTES ? GATHER_NS : 0;
        wait_ns = wait_ns < soon ? wait_ns : soon;
    }
    for (int i = 0; i < 2; i++) {
        int64_t due = relay->channels[i].due_ns;
        if (due && due - now < wait_ns)
            wait_ns = due - now;
    }
    if (relay->sidecar.alive)
        wait_ns = side_wait_ns(&relay->sidecar.pipe, now, wait_ns);
    return ms_until(now + wait_ns);
}

static void take_word(struct relay *relay)
{
    static struct wire_packet packet; /* some 64 KiB, of which the first page is used */
    int got = wire_receive(relay->keeper, &packet, 0);
    if (got < 0)
        return;
    if (got == 0) {
        close_fd(&relay->keeper);
        relay->orphaned = !relay->ended;
    } else if (packet.head.type == WIRE_EXIT) {
        relay->ended = true;
        relay->wait_status = packet.head.value;
    } else if (packet.head.type == WIRE_GONE) {
        relay->orphaned = !relay->ended;
    }
    for (unsigned i = 0; i < packet.fd_count; i++)
        close(packet.fds[i]);
}

enum place { MASTER_1, MASTER_2, OUT_1, OUT_2, SIDE, REPORT, KEEPER, PLACES };

static void fill_poll(const struct relay *relay, struct pollfd places[PLACES])
{
    for (int i = 0; i < 2; i++) {
        const struct channel *channel = &relay->channels[i];
        bool stopped = is_stopped(relay, channel), writes = channel->blocked && !stopped;
        places[MASTER_1 + i] = (struct pollfd){.fd = channel->listening ? channel->master : -1, .events = POLLIN};
        if (stopped && !channel->given)
            places[MASTER_1 + i] = (struct pollfd){.fd = channel->master}; /* only whether it is hung up */
        places[OUT_1 + i] = (struct pollfd){.fd = writes ? channel->out.fd : -1, .events = POLLOUT};
    }
    const struct sidecar *sidecar = &relay->sidecar;
    bool waits = sidecar->alive && sidecar->pipe.blocked;
    places[SIDE] = (struct pollfd){.fd = waits ? sidecar->pipe.fd : -1, .events = POLLOUT};
    places[REPORT] = (struct pollfd){.fd = sidecar->alive ? sidecar->report : -1, .events = POLLIN};
    places[KEEPER] = (struct pollfd){.fd = relay->keeper, .events = POLLIN};
}

/* While the relay has stopped: nobody holds the stream any more, so somebody may wait for its end,
 * and hasn't to wait for the sidecar. What still comes of it the sidecar finds in the journal. */
static void resume(struct relay *relay, struct channel *channel)
{
    channel->resumed = sidecar_take_back(&relay->sidecar, (unsigned)channel->stream);
    channel->given = !channel->resumed;
}

static void listen_all(struct relay *relay)
{
    for (int i = 0; i < 2; i++)
        listen_to(relay, &relay->channels[i]);
}

/* One poll, of wait_ns at most, and what follows from it. */
static void turn(struct relay *relay, int64_t wait_ns)
{
    struct pollfd places[PLACES];
    struct channel *channels = relay->channels;
    if (sidecar_needs_care(&relay->sidecar) && wait_ns > CARE_NS)
        wait_ns = CARE_NS;
    fill_poll(relay, places);
    if (poll(places, PLACES, wait_ms(relay, wait_ns)) < 0)
        return; /* EINTR; nothing else is left */
    bool any = false;
    for (int i = 0; i < 2; i++) {
        channels[i].ready = channels[i].listening && places[MASTER_1 + i].revents;
        any |= channels[i].ready;
        if (channels[i].listening && !channels[i].ready)
            channels[i].drained = true;
    }
    int64_t now = now_ns();
    for (int i = 0; i < 2; i++)
        if (channels[i].listening)
            channel_polled(&channels[i], now);
    if (any)
        read_ready(relay, now);
    else
        rest(relay, now);
    if (!any || now >= relay->sink_due_ns) {
        relay->sink_due_ns = now + SINK_NS;
        sidecar_flush_if_due(&relay->sidecar);
    }
    for (int i = 0; i < 2; i++) {
        if (places[OUT_1 + i].revents && !channels[i].closed) {
            deliver(relay, &channels[i], now);
            deliver_other(relay, &channels[i], now);
        } else if (channels[i].due_ns && now >= channels[i].due_ns) {
            deliver(relay, &channels[i], now);
        }
    }
    for (int i = 0; i < 2; i++)
        if (is_stopped(relay, &channels[i]) && places[MASTER_1 + i].revents)
            resume(relay, &channels[i]);
    if (places[SIDE].revents)
        sidecar_unblock(&relay->sidecar);
    if (places[REPORT].revents)
        sidecar_read_report(&relay->sidecar);
    if (places[KEEPER].revents)
        take_word(relay);
    relay->sidecar.hurry = relay->ended && !relay->stopped && !is_over(relay);
    sidecar_check(&relay->sidecar);
    if (relay->sidecar.trouble[0]) {
        say(relay, relay->sidecar.trouble);
        relay->sidecar.trouble[0] = 0;
    }
    listen_all(relay);
}

/* ---- the course */

static void begin_drain(struct relay *relay)
{
    relay->fresh = true; /* the next poll is a short one */
    for (int i = 0; i < 2; i++) {
        relay->channels[i].drained = relay->channels[i].closed;
        relay->channels[i].after_exit = 0;
    }
}

/* Whether all that CMD left in its terminals is delivered; a child that writes on and on is left to
 * the sidecar. */
static bool is_drained(const struct relay *relay)
{
    for (int i = 0; i < 2; i++) {
        const struct channel *channel = &relay->channels[i];
        if (channel->size || !(channel->drained || channel->after_exit >= LEFT_BEHIND_BYTES))
            return false;
    }
    return true;
}

static bool cmd_is_dead(const struct relay *relay)
{
    struct pollfd end = {.fd = relay->cmd_pidfd, .events = POLLIN};
    if (relay->cmd_pidfd >= 0)
        return poll(&end, 1, 0) > 0;
    return kill(relay->cmd_pid, 0) && errno == ESRCH;
}

/* Tells the sidecar of the end and waits for its word that all is synced. */
static void end_sidecar(struct relay *relay)
{
    struct sidecar *sidecar = &relay->sidecar;
    if (sidecar->alive && relay->ended)
        side_exit(&sidecar->pipe, relay->wait_status);
    sidecar_flush(sidecar);
    while (sidecar->alive && side_waiting(&sidecar->pipe))
        turn(relay, CARE_NS);
    FAULT_POINT(end_told);
    sidecar_hang_up(sidecar);
    while (sidecar_may_finish(sidecar))
        turn(relay, FINISH_NS);
}

static bool is_one_resumed(const struct relay *relay)
{
    const struct channel *channels = relay->channels;
    return (channels[0].resumed && !channels[0].closed) || (channels[1].resumed && !channels[1].closed);
}

void relay_init(struct relay *relay)
{
    relay->order = relay->keeper = relay->cmd_pidfd = -1;
    for (int i = 0; i < 2; i++) {
        relay->channels[i].stream = i + 1;
        relay->channels[i].master = relay->channels[i].out.fd = -1;
        relay->channels[i].out.stage[0] = relay->channels[i].out.stage[1] = -1;
        relay->channels[i].closed = relay->channels[i].drained = true;
    }
}

void relay_add(struct relay *relay, int stream, int master, int out)
{
    relay->channels[stream - 1].closed = relay->channels[stream - 1].drained = false;
    channel_init(&relay->channels[stream - 1], stream, master, out, relay->counters, &relay->journal);
}

void relay_missed(struct relay *relay)
{
    for (int i = 0; i < 2; i++)
        channel_close(&relay->channels[i]);
    side_missed(&relay->sidecar.pipe);
    say(relay, "not captured: the node was too busy to start its relay in time");
}

void relay_run(struct relay *relay)
{
    struct channel *channels = relay->channels;
    if (!channels[0].closed && !channels[1].closed) {
        channel_pair(&channels[0], &channels[1], &relay->line);
        follow_order(relay);
    }
    for (unsigned i = 0; i < 2; i++)
        if (channels[i].closed)
            sidecar_closed(&relay->sidecar, i + 1);
    listen_all(relay);
    relay->fresh = true;
    while (!relay->ended && !(relay->orphaned && is_over(relay) && cmd_is_dead(relay)))
        turn(relay, relay->orphaned ? ORPHAN_NS : FOREVER_NS);
    FAULT_POINT(cmd_ended);
    if (relay->ended)
        counters_note_end(relay->counters, relay->wait_status);
    FAULT_POINT(end_noted);
    begin_drain(relay);
    while (!is_drained(relay))
        turn(relay, FOREVER_NS);
    FAULT_POINT(streams_drained);
    if (relay->keeper >= 0)
        (void)wire_tell(relay->keeper, WIRE_DRAINED, relay->task, 0, 0);
    relay->stopped = true;
    listen_all(relay);
    end_sidecar(relay);
    while (is_one_resumed(relay))
        turn(relay, FOREVER_NS);
    if (relay->sidecar.alive || relay->sidecar.done)
        return; /* streams that somebody still holds are the sidecar's now */
    relay->stopped = false;
    listen_all(relay);
    while (!is_over(relay))
        turn(relay, FOREVER_NS);
}
