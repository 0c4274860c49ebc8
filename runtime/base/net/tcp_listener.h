#pragma once

#include <string>

namespace lockstep {

/// A TCP socket that is bound to one address but not yet listening; closed on destruction.
class TcpListener {
 public:
  /// Binds to `host` only, an address or a name (which may ask a name server). If `port` is 0, the system
  /// chooses one. Throws ClusterError naming host:port, for example if the port is in use; `who` starts its
  /// message.
  TcpListener(const std::string& host, int port, const std::string& who = "join");
  /// Takes ownership of a bound socket that this process was started with. Throws ClusterError if
  /// `descriptor` is not a TCP socket or is bound to another port.
  static TcpListener adopt(int descriptor, int port);
  ~TcpListener();
  TcpListener(TcpListener&& other) noexcept;
  TcpListener& operator=(TcpListener&&) = delete;

  int port() const { return port_; }
  int descriptor() const { return socket_; }
  /// Returns the descriptor and gives up its ownership.
  int release();

 private:
  TcpListener() = default;

  int socket_ = -1;
  int port_ = 0;
};

/// Returns the numeric address that this machine uses to reach `host`, by which hosts there can reach it. May
/// ask a name server; sends nothing. Throws ClusterError if there is no route.
std::string address_towards(const std::string& host, int port);

}  // namespace lockstep
