#include "lockstep/runtime/base/net/udp_socket.h"

// C library headers, for their types.
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lockstep/runtime/base/net/address_lookup.h"

namespace lockstep {
namespace {

/// The first known address for a datagram socket.
SocketAddress find_udp_address(AddressQuery query, const std::string& purpose) {
  query.type = SOCK_DGRAM;
  const auto found = look_up_addresses(query, purpose);
  SocketAddress address;
  address.size = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

template <typename Address>
Address address_as(const SocketAddress& address) {
  Address result{};
  std::memcpy(&result, &address.storage, sizeof(result));
  return result;
}

[[noreturn]] void throw_udp_error(const std::string& what) {
  throw std::system_error(errno, std::system_category(), what);
}

/// True for an ICMP message saying that nobody holds the port.
bool says_refused(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    const bool v4 = part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_RECVERR;
    const bool v6 = part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_RECVERR;
    if (!v4 && !v6) continue;
    sock_extended_err error{};
    std::memcpy(&error, CMSG_DATA(part), sizeof(error));
    return error.ee_errno == ECONNREFUSED &&
           (error.ee_origin == SO_EE_ORIGIN_ICMP || error.ee_origin == SO_EE_ORIGIN_ICMP6);
  }
  return false;
}

}  // namespace

bool SocketAddress::operator==(const SocketAddress& other) const {
  if (storage.ss_family != other.storage.ss_family) return false;
  if (storage.ss_family == AF_INET) {
    const auto a = address_as<sockaddr_in>(*this);
    const auto b = address_as<sockaddr_in>(other);
    return a.sin_port == b.sin_port && a.sin_addr.s_addr == b.sin_addr.s_addr;
  }
  const auto a = address_as<sockaddr_in6>(*this);
  const auto b = address_as<sockaddr_in6>(other);
  return a.sin6_port == b.sin6_port && std::memcmp(&a.sin6_addr, &b.sin6_addr, sizeof(a.sin6_addr)) == 0;
}

UdpSocket::UdpSocket(const std::string& address, int port) {
  try {
    open(address, port);
  } catch (...) {
    close();
    throw;
  }
}

UdpSocket::~UdpSocket() {
  close();
}

void UdpSocket::open(const std::string& address, int port) {
  const std::string purpose = "cannot bind a UDP socket to";
  const SocketAddress own = find_udp_address({.host = address, .port = port}, purpose);
  const std::string failure = purpose + " " + endpoint_text(address, port);
  family_ = own.storage.ss_family;
  socket_ = socket(family_, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) throw_udp_error(failure);
  interruption_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (interruption_ < 0) throw_udp_error(failure);

  // The error queue names the receiver of each ICMP message; an error code would not.
  const int on = 1;
  const int level = family_ == AF_INET6 ? IPPROTO_IPV6 : IPPROTO_IP;
  const int option = family_ == AF_INET6 ? IPV6_RECVERR : IP_RECVERR;
  if (setsockopt(socket_, level, option, &on, sizeof(on)) != 0) throw_udp_error(failure);
  if (family_ == AF_INET6 && setsockopt(socket_, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on)) != 0) {
    throw_udp_error(failure);
  }
  // Keeps more messages for a process that did not run for a while. The system may grant less.
  const int buffer_bytes = 4 << 20;
  setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof(buffer_bytes));

  if (bind(socket_, reinterpret_cast<const sockaddr*>(&own.storage), own.size) != 0) {
    throw_udp_error(failure);
  }
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (getsockname(socket_, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) {
    throw_udp_error(failure);
  }
  port_ = ntohs(family_ == AF_INET6 ? address_as<sockaddr_in6>(bound).sin6_port
                                    : address_as<sockaddr_in>(bound).sin_port);
}

void UdpSocket::close() {
  if (socket_ >= 0) ::close(socket_);
  if (interruption_ >= 0) ::close(interruption_);
}

SocketAddress UdpSocket::resolve(const std::string& host, int port) const {
  return find_udp_address({.host = host, .port = port, .family = family_}, "cannot find the address of");
}

bool UdpSocket::send_to(const SocketAddress& receiver, std::span<const uint8_t> datagram) {
  // A call may report the error of an earlier datagram, to any receiver, instead of doing its work. Hence the
  // second and third attempts.
  for (int attempt = 0; attempt < 3; ++attempt) {
    const ssize_t sent = sendto(socket_, datagram.data(), datagram.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&receiver.storage), receiver.size);
    if (sent >= 0) return true;
    if (errno == EAGAIN) return false;
  }
  return false;
}

std::optional<size_t> UdpSocket::receive(std::span<uint8_t> buffer) {
  for (int attempt = 0; attempt < 3; ++attempt) {  // as in send_to()
    const ssize_t size = recv(socket_, buffer.data(), buffer.size(), MSG_TRUNC);
    if (size >= 0) return static_cast<size_t>(size);
    if (errno == EAGAIN) return std::nullopt;
  }
  return std::nullopt;
}

std::optional<SocketAddress> UdpSocket::receive_refusal() {
  while (true) {
    SocketAddress receiver;
    alignas(cmsghdr) std::array<char, 512> control;
    msghdr message{};
    message.msg_name = &receiver.storage;
    message.msg_namelen = sizeof(receiver.storage);
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(socket_, &message, MSG_ERRQUEUE) < 0) {
      if (errno == EINTR) continue;
      return std::nullopt;
    }
    receiver.size = message.msg_namelen;
    if (says_refused(message)) return receiver;
  }
}

void UdpSocket::wait_until(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  const auto milliseconds = std::clamp<int64_t>(left.count(), 0, 1 << 30);
  std::array<pollfd, 2> watched = {pollfd{.fd = socket_, .events = POLLIN, .revents = 0},
                                   pollfd{.fd = interruption_, .events = POLLIN, .revents = 0}};
  if (poll(watched.data(), watched.size(), static_cast<int>(milliseconds)) <= 0) return;
  uint64_t interruptions = 0;
  if (watched[1].revents != 0) {
    [[maybe_unused]] const ssize_t taken = read(interruption_, &interruptions, sizeof(interruptions));
  }
}

void UdpSocket::interrupt() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(interruption_, &one, sizeof(one));
}

}  // namespace lockstep
