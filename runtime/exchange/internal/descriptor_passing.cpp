#include "lockstep/runtime/exchange/internal/descriptor_passing.h"

// C library headers, for their types.
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "lockstep/runtime/base/internal/deadline.h"

namespace lockstep {
namespace {

/// A message of one byte with room for a descriptor. Its parts point to each other, so it does not move.
struct DescriptorMessage {
  DescriptorMessage() {
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  char byte = 'd';
  iovec vector{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
};

[[noreturn]] void fail_passing(int error) {
  throw std::system_error(error, std::generic_category(), "pass a descriptor");
}

}  // namespace

void send_descriptor(int socket, int descriptor) {
  DescriptorMessage message;
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  if (sendmsg(socket, &message.header, MSG_NOSIGNAL) != 1) fail_passing(errno);
}

Descriptor receive_descriptor(int socket, std::chrono::steady_clock::time_point deadline) {
  pollfd polled{socket, POLLIN, 0};
  while (poll(&polled, 1, poll_timeout(deadline)) <= 0) {
    if (std::chrono::steady_clock::now() >= deadline) fail_passing(ETIMEDOUT);
  }
  DescriptorMessage message;
  const ssize_t count = recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  if (count < 0) fail_passing(errno);
  if (count == 0) fail_passing(ECONNRESET);
  const cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  if (part == nullptr || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS ||
      part->cmsg_len != CMSG_LEN(sizeof(int)))
    fail_passing(EBADMSG);
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(part), sizeof(int));
  return Descriptor(descriptor);
}

}  // namespace lockstep
