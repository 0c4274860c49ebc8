#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// An IPv4 or IPv6 address with its port, in the system's format.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  /// Compares family, address and port.
  bool operator==(const SocketAddress& other) const;
};

/// A UDP socket with its own address, closed on destruction. Only wait_until() blocks. Not thread-safe,
/// except for interrupt().
class UdpSocket {
 public:
  /// Binds to `address` only, an IPv4 or IPv6 address or a host name (which may ask a name server). If `port`
  /// is 0, the system chooses one. Throws std::system_error naming address:port.
  explicit UdpSocket(const std::string& address, int port = 0);
  ~UdpSocket();
  UdpSocket(const UdpSocket&) = delete;
  UdpSocket& operator=(const UdpSocket&) = delete;

  int port() const { return port_; }

  /// Returns the address of another socket, in this socket's address family. For a host name it may ask a
  /// name server, which can take seconds. Throws std::system_error naming host:port.
  SocketAddress resolve(const std::string& host, int port) const;

  /// Sends a datagram. Returns false if the system did not accept it, for example because there is no route
  /// or no memory. An accepted datagram may still be lost.
  bool send_to(const SocketAddress& receiver, std::span<const uint8_t> datagram);

  /// Copies the next waiting datagram into `buffer`, truncated to fit, and returns its full size; nullopt if
  /// none waits.
  std::optional<size_t> receive(std::span<uint8_t> buffer);

  /// Returns the receiver of a datagram that the receiving host's kernel rejected by ICMP because no socket
  /// has that port; nullopt if there is none. Firewalls often drop such reports.
  std::optional<SocketAddress> receive_refusal();

  /// Blocks until something can be received, interrupt() is called, or `deadline` passes.
  void wait_until(std::chrono::steady_clock::time_point deadline);
  /// Ends the current wait_until(), or the next one if none is running. Thread-safe.
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
