#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/pending_connections.h"
#include "lockstep/runtime/exchange/link_handshake.h"

namespace lockstep {

struct PendingLinkOptions {
  JobToken token;
  uint32_t rank = 0;        ///< of this process
  uint64_t generation = 0;  ///< of the job's start
  /// Whether the connection came to a Unix socket. Only these may have shared memory, and only processes of
  /// the same user are served there.
  bool is_local = false;
};

/// The accepting end of a link that is not encrypted, during the handshake of link_handshake.h.
class PendingLink final : public PendingConnection {
 public:
  /// Called once the other end has proved the token.
  using Accept = std::function<void(const LinkHello& hello, Descriptor socket)>;

  /// Sends the greeting; does not block. Throws std::system_error if the other end is gone or is another
  /// user's.
  PendingLink(Descriptor socket, const PendingLinkOptions& options, Accept accept);

  bool advance() override;
  pollfd awaited() const override { return {socket_.get(), POLLIN, 0}; }
  bool has_greeted() const override { return false; }  // the hello is its only message

 private:
  bool has_come();

  Descriptor socket_;
  const PendingLinkOptions options_;
  const Accept accept_;
  const std::vector<uint8_t> greeting_;
  std::vector<uint8_t> hello_;  // what has arrived of it
};

}  // namespace lockstep
