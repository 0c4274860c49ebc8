#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "lockstep/runtime/exchange/exchange_engine.h"
#include "lockstep/runtime/exchange/exchange_link.h"
#include "lockstep/runtime/exchange/exchange_message.h"
#include "lockstep/runtime/exchange/exchange_plan.h"

namespace lockstep {

/// Size of the largest element that can be reduced.
inline constexpr size_t kMaxElementBytes = 16;

/// Returns the size of some blocks of a call.
uint64_t bytes_of_blocks(const ExchangeCall& call, const BlockRanges& ranges);

/// A position in a list of pieces of memory.
template <typename Byte>
class Cursor {
 public:
  explicit Cursor(std::vector<std::span<Byte>> parts) : parts_(std::move(parts)), left_(parts_) {}

  bool is_done() const { return left_.empty(); }
  std::span<const std::span<Byte>> parts() const { return left_; }
  /// Returns the rest of the current piece.
  std::span<Byte> part() const { return left_.front(); }
  void advance(size_t count) {
    while (!left_.empty() && count >= left_.front().size()) {
      count -= left_.front().size();
      left_ = left_.subspan(1);
    }
    if (!left_.empty()) left_.front() = left_.front().subspan(count);
  }

 private:
  std::vector<std::span<Byte>> parts_;
  std::span<std::span<Byte>> left_;
};

/// A message on its way to a peer.
class SentMessage {
 public:
  SentMessage(int peer, ExchangeLink& link, const MessageHeader& header, const ExchangeCall& call,
              const BlockRanges& blocks);
  SentMessage(const SentMessage&) = delete;
  SentMessage& operator=(const SentMessage&) = delete;

  int peer() const { return peer_; }
  ExchangeLink& link() const { return link_; }
  bool is_done() const { return message_.is_done(); }
  /// Returns how many bytes the link has taken: of the payload, or of all.
  size_t payload_sent() const { return sent_ - std::min(sent_, header_.size()); }
  size_t sent() const { return sent_; }

  /// Returns whether the link has taken any bytes now.
  bool advance();

 private:
  const int peer_;
  ExchangeLink& link_;
  const std::vector<uint8_t> header_;
  Cursor<const uint8_t> message_;
  size_t sent_ = 0;
};

/// A message that is expected from a peer.
class ReceivedMessage {
 public:
  /// `before`, if not null, sends the same blocks, which must not change before they are sent.
  ReceivedMessage(int peer, ExchangeLink& link, MessageHeader expected, const ExchangeCall& call,
                  const PlanReceive& receive, const SentMessage* before);

  int peer() const { return peer_; }
  ExchangeLink& link() const { return link_; }
  bool is_done() const { return has_header_ && payload_.is_done(); }
  /// Returns whether it can use bytes if some arrive now.
  bool is_open() const {
    return !is_done() && (!has_header_ || payload_limit() >= (is_added_ ? call_.element_bytes : 1));
  }

  /// Returns whether any bytes were received. Throws ExchangeError for a message of another call, and
  /// InvalidArgument for bytes that are not a message.
  bool advance();

 private:
  size_t payload_limit() const;
  bool read_header();
  void check(const MessageHeader& header) const;
  size_t add(size_t limit);

  const int peer_;
  ExchangeLink& link_;
  const MessageHeader expected_;
  const ExchangeCall& call_;
  const bool is_added_;
  const SentMessage* const before_;
  std::vector<uint8_t> header_;
  size_t header_read_ = 0;
  bool has_header_ = false;
  Cursor<uint8_t> payload_;
  size_t received_ = 0;  // bytes of the payload
  std::array<uint8_t, kMaxElementBytes> split_{};
  size_t num_split_ = 0;
};

/// The messages of one round.
struct MessageRound {
  std::vector<std::unique_ptr<SentMessage>> sent;
  std::vector<std::unique_ptr<ReceivedMessage>> received;

  bool is_done() const;
  /// Sends and receives what is possible now. Returns whether there was anything. Throws ExchangeError.
  bool advance();
};

/// Whether an error tells that the other end of a connection is gone.
inline bool is_end_of_connection(const std::error_code& code) {
  for (const auto known :
       {std::errc::connection_reset, std::errc::broken_pipe, std::errc::connection_aborted,
        std::errc::connection_refused, std::errc::not_connected, std::errc::timed_out,
        std::errc::host_unreachable, std::errc::network_unreachable, std::errc::network_down}) {
    if (code == known) return true;
  }
  return false;
}

/// Calls a function, and turns its errors about `peer`, those of links and messages, into ExchangeError.
template <typename Function>
auto with_peer(int peer, const Function& function) {
  try {
    return function();
  } catch (const ExchangeError&) {
    throw;
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::bad_message)
      throw ExchangeError(ExchangeError::Kind::kBadMessage, peer, "damaged the memory of the link");
    if (is_end_of_connection(error.code()))
      throw ExchangeError(ExchangeError::Kind::kClosed, peer, "closed the connection");
    throw;  // this process has run out of something
  } catch (const std::invalid_argument& error) {
    throw ExchangeError(ExchangeError::Kind::kBadMessage, peer, error.what());
  }
}

}  // namespace lockstep
