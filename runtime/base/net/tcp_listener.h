#pragma once

#include <string>

namespace lockstep {

/// A TCP socket that is bound to one address and has not begun to listen, closed on destruction.
class TcpListener {
 public:
  /// Binds to `host`, an address or a name (which may ask a name server), and to nothing besides; the system
  /// chooses port 0. Throws ClusterError naming host:port, such as where the port is in use.
  TcpListener(const std::string& host, int port);
  /// Takes over a bound socket that this process was started with. Throws ClusterError where `descriptor` is
  /// no TCP socket, or one of another port.
  static TcpListener adopt(int descriptor, int port);
  ~TcpListener();
  TcpListener(TcpListener&& other) noexcept;
  TcpListener& operator=(TcpListener&&) = delete;

  int port() const { return port_; }
  int descriptor() const { return socket_; }
  /// The descriptor, which belongs to the caller from now on.
  int release();

 private:
  TcpListener() = default;

  int socket_ = -1;
  int port_ = 0;
};

/// This machine's address, as a number, by which it reaches `host`: what others there can reach it by. May
/// ask a name server, sends nothing. Throws ClusterError where there is no way.
std::string address_towards(const std::string& host, int port);

}  // namespace lockstep
