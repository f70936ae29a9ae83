#include "wire.h"

#include "basics.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int wire_pair(int ends[2])
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return -1;
    const int yes = 1;
    for (int i = 0; i < 2; i++) {
        if (setsockopt(ends[i], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes)) {
            int error = errno;
            close_fd(&ends[0]);
            close_fd(&ends[1]);
            errno = error;
            return -1;
        }
    }
    return 0;
}

int wire_send(int fd, struct wire_head head, const void *payload, const int *fds, unsigned fd_count, int wait_ms)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(WIRE_MAX_FDS * sizeof(int))];
    } control;
    struct iovec parts[2] = {
        {.iov_base = &head, .iov_len = sizeof head},
        {.iov_base = (void *)payload, .iov_len = head.size},
    };
    struct msghdr packet = {.msg_iov = parts, .msg_iovlen = head.size ? 2 : 1};
    if (fd_count > WIRE_MAX_FDS || head.size > WIRE_MAX_PAYLOAD) {
        errno = EMSGSIZE;
        return -1;
    }
    if (fd_count) {
        memset(&control, 0, sizeof control);
        packet.msg_control = control.bytes;
        packet.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&packet);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(rights), fds, fd_count * sizeof(int));
    }
    int64_t deadline = now_ns() + wait_ms * MS_NS;
    for (;;) {
        if (sendmsg(fd, &packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return -1;
        struct pollfd room = {.fd = fd, .events = POLLOUT};
        int left_ms = ms_until(deadline);
        if (!left_ms || (poll(&room, 1, left_ms) < 0 && errno != EINTR)) {
            errno = EAGAIN;
            return -1;
        }
    }
}

int wire_tell(int fd, enum wire_type type, uint32_t task, int value, int wait_ms)
{
    struct wire_head head = {.type = (uint32_t)type, .task = task, .value = value};
    return wire_send(fd, head, NULL, NULL, 0, wait_ms);
}

static void take_control(struct wire_packet *packet, struct msghdr *header)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level != SOL_SOCKET)
            continue;
        size_t size = part->cmsg_len - CMSG_LEN(0);
        if (part->cmsg_type == SCM_CREDENTIALS && size >= sizeof(struct ucred)) {
            struct ucred sender;
            memcpy(&sender, CMSG_DATA(part), sizeof sender);
            packet->pid = sender.pid;
        } else if (part->cmsg_type == SCM_RIGHTS) {
            for (size_t i = 0; i + sizeof(int) <= size; i += sizeof(int)) {
                int fd;
                memcpy(&fd, CMSG_DATA(part) + i, sizeof fd);
                if (packet->fd_count < WIRE_MAX_FDS)
                    packet->fds[packet->fd_count++] = fd;
                else
                    close(fd);
            }
        }
    }
}

int wire_receive(int fd, struct wire_packet *packet, int wait_ms)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(WIRE_MAX_FDS * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    int64_t deadline = now_ns() + wait_ms * MS_NS;
    ssize_t size;
    struct msghdr header;
    struct iovec parts[2];
    packet->pid = 0;
    packet->fd_count = 0;
    for (;;) {
        parts[0] = (struct iovec){.iov_base = &packet->head, .iov_len = sizeof packet->head};
        parts[1] = (struct iovec){.iov_base = packet->payload, .iov_len = WIRE_MAX_PAYLOAD};
        header = (struct msghdr){.msg_iov = parts, .msg_iovlen = 2, .msg_control = control.bytes,
                                 .msg_controllen = sizeof control};
        size = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (size >= 0)
            break;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            return -1;
        struct pollfd news = {.fd = fd, .events = POLLIN};
        int left_ms = ms_until(deadline);
        if (!left_ms || (poll(&news, 1, left_ms) < 0 && errno != EINTR)) {
            errno = EAGAIN;
            return -1;
        }
    }
    take_control(packet, &header);
    if (size == 0)
        return 0;
    if ((size_t)size < sizeof packet->head || (size_t)size - sizeof packet->head != packet->head.size ||
        header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        for (unsigned i = 0; i < packet->fd_count; i++)
            close(packet->fds[i]);
        packet->fd_count = 0;
        errno = EBADMSG;
        return -1;
    }
    packet->payload[packet->head.size] = 0;
    return 1;
}
