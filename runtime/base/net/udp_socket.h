#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// An IPv4 or IPv6 address with its port, as the system writes it.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  /// Compares family, address and port.
  bool operator==(const SocketAddress& other) const;
};

/// A UDP socket of its own address, closed on destruction. No call but wait_until() blocks. For one thread,
/// except that any may call interrupt().
class UdpSocket {
 public:
  /// Binds to `address`, an IPv4 or IPv6 address or a host name (which may ask a name server), and to
  /// nothing besides; the system chooses port 0. Throws std::system_error naming address:port.
  explicit UdpSocket(const std::string& address, int port = 0);
  ~UdpSocket();
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  int port() const { return port_; }

  /// The address of another socket, of this one's family. A host name may ask a name server, which may take
  /// seconds. Throws std::system_error naming host:port.
  SocketAddress resolve(const std::string& host, int port) const;

  /// False if the system did not take the datagram, for want of a route or of memory for instance. One it
  /// took may be lost all the same.
  bool send_to(const SocketAddress& receiver, std::span<const uint8_t> datagram);

  /// Copies the next datagram that waits into `buffer`, as much of it as fits, and returns its whole size.
  std::optional<size_t> receive(std::span<uint8_t> buffer);

  /// The receiver of a datagram that came to a host where no socket has that port, which the host's kernel
  /// reported by ICMP. Firewalls often swallow such reports.
  std::optional<SocketAddress> receive_refusal();

  /// Blocks until something can be received, interrupt() was called, or `deadline` has passed.
  void wait_until(std::chrono::steady_clock::time_point deadline);
  /// Ends the present wait_until(), or else the next one. Thread-safe.
  void interrupt();

 private:
  void open(const std::string& address, int port);
  void close();

  int socket_ = -1;
  int interruption_ = -1;  // an eventfd
  int family_ = 0;
  int port_ = 0;
};

}  // namespace lockstep
