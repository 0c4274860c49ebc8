#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tcp_listener.h"

namespace lockstep {

/// Two ends of one connection over loopback.
struct SocketPair {
  StreamSocket client;
  StreamSocket server;
};

inline StreamSocket::Clock::time_point soon(std::chrono::milliseconds time = std::chrono::seconds(60)) {
  return StreamSocket::Clock::now() + time;
}

inline SocketPair connected_sockets() {
  const TcpListener listener("127.0.0.1", 0);
  if (listen(listener.descriptor(), 1) != 0)
    throw std::system_error(errno, std::generic_category(), "listen");
  auto client = StreamSocket::connect("127.0.0.1", listener.port(), soon());
  const int accepted = accept(listener.descriptor(), nullptr, nullptr);
  if (accepted < 0) throw std::system_error(errno, std::generic_category(), "accept");
  return {std::move(client), StreamSocket(accepted)};
}

/// Returns the error that a call fails with, if any.
template <typename Call>
std::error_code code_of(const Call& call) {
  try {
    call();
  } catch (const std::system_error& error) {
    return error.code();
  }
  return {};
}

}  // namespace lockstep
