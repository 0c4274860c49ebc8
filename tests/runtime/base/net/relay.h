#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {

/// An attacker on the way: hands on what two ends send each other, and records and changes it.
class Relay {
 public:
  /// Gets what one end has sent, and returns what the other end receives.
  using Change = std::function<std::vector<uint8_t>(std::vector<uint8_t>)>;

  Relay(StreamSocket client_side, StreamSocket server_side, Change change_to_server = {},
        Change change_to_client = {})
      : client_side_(std::move(client_side)),
        server_side_(std::move(server_side)),
        to_server_(std::thread([this, change = std::move(change_to_server)] {
          hand_on(client_side_, server_side_, from_client_, change);
        })),
        to_client_(std::thread([this, change = std::move(change_to_client)] {
          hand_on(server_side_, client_side_, from_server_, change);
        })) {}
  ~Relay() { stop(); }

  /// Cuts both connections. Afterwards, the recordings are complete.
  void stop() {
    client_side_.shut();
    server_side_.shut();
    if (to_server_.joinable()) to_server_.join();
    if (to_client_.joinable()) to_client_.join();
  }

  /// All that was sent, before it was changed.
  const std::vector<uint8_t>& from_client() const { return from_client_; }
  const std::vector<uint8_t>& from_server() const { return from_server_; }

 private:
  static void hand_on(StreamSocket& from, StreamSocket& to, std::vector<uint8_t>& record,
                      const Change& change) {
    for (;;) {
      std::vector<uint8_t> bytes(size_t{64} * 1024);
      from.wait_for(POLLIN, StreamSocket::kNoDeadline);
      const ssize_t count = recv(from.descriptor(), bytes.data(), bytes.size(), 0);
      if (count <= 0) break;
      bytes.resize(static_cast<size_t>(count));
      record.insert(record.end(), bytes.begin(), bytes.end());
      if (change) bytes = change(std::move(bytes));
      try {
        to.send({bytes}, StreamSocket::kNoDeadline);
      } catch (const std::system_error&) {
        break;
      }
    }
    to.shut();
  }

  StreamSocket client_side_;
  StreamSocket server_side_;
  std::vector<uint8_t> from_client_;
  std::vector<uint8_t> from_server_;
  std::thread to_server_;
  std::thread to_client_;
};

}  // namespace lockstep
