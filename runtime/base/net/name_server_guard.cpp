#include "lockstep/runtime/base/net/name_server_guard.h"

#include <features.h>

#ifdef __GLIBC__

#include <arpa/inet.h>
#include <arpa/nameser.h>
#include <netinet/in.h>
#include <poll.h>
#include <resolv.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <thread>

#include "lockstep/runtime/base/net/descriptor.h"

namespace lockstep {
/// A name server on loopback, in its own thread, that knows no names. The resolver's callers warn about other
/// failures, such as an unreachable server, but not about a name that does not exist.
class NameServerGuard::Responder {
 private:
  static Descriptor opened(int descriptor) {
    if (descriptor < 0) throw std::system_error(errno, std::system_category(), "no descriptor");
    return Descriptor(descriptor);
  }

 public:
  Responder() {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    auto* const address = reinterpret_cast<sockaddr*>(&address_);
    if (bind(socket_.get(), address, size) != 0 || getsockname(socket_.get(), address, &size) != 0)
      throw std::system_error(errno, std::system_category(), "no socket on loopback");
    thread_ = std::thread([this] { run(); });
  }
  ~Responder() {
    eventfd_write(end_.get(), 1);
    thread_.join();
  }
  Responder(const Responder&) = delete;
  Responder& operator=(const Responder&) = delete;

  const sockaddr_in& address() const { return address_; }

 private:
  void run() {
    std::array<pollfd, 2> waiting{pollfd{socket_.get(), POLLIN, 0}, pollfd{end_.get(), POLLIN, 0}};
    while (waiting[1].revents == 0) {
      if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
      if (waiting[0].revents != 0) answer();
    }
  }

  /// Returns the question with two bits of RFC 1035, 4.1.1 set: it is an answer (QR), and the name does not
  /// exist (RCODE 3).
  void answer() {
    std::array<uint8_t, NS_MAXMSG> message{};
    sockaddr_in asker{};
    socklen_t size = sizeof asker;
    auto* const to = reinterpret_cast<sockaddr*>(&asker);
    const auto length = recvfrom(socket_.get(), message.data(), message.size(), MSG_DONTWAIT, to, &size);
    if (length < NS_HFIXEDSZ) return;
    message[2] |= 0x80U;
    message[3] = static_cast<uint8_t>((message[3] & 0xF0U) | ns_r_nxdomain);
    // If the answer is lost, the resolver asks again.
    sendto(socket_.get(), message.data(), static_cast<size_t>(length), MSG_DONTWAIT, to, size);
  }

  const Descriptor socket_ = opened(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const Descriptor end_ = opened(eventfd(0, EFD_CLOEXEC));
  sockaddr_in address_{};
  std::thread thread_;
};

// The resolver's state is per thread, and programs may change it: see resolver(3).
NameServerGuard::NameServerGuard() {
  if ((_res.options & RES_INIT) != 0) res_nclose(&_res);
  if (res_ninit(&_res) != 0) return;
  try {
    responder_ = std::make_unique<Responder>();
  } catch (const std::system_error&) {  // no descriptor, thread or loopback is available
    return;
  }
  _res.nscount = 1;
  _res.nsaddr_list[0] = responder_->address();
  _res.options &= ~static_cast<unsigned long>(RES_USEVC);  // ask by UDP
}

NameServerGuard::~NameServerGuard() {
  if (!responder_) return;
  res_nclose(&_res);
  res_ninit(&_res);
}

}  // namespace lockstep

#else

namespace lockstep {

class NameServerGuard::Responder {};

NameServerGuard::NameServerGuard() = default;
NameServerGuard::~NameServerGuard() = default;

}  // namespace lockstep

#endif
