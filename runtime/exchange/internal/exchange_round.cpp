#include "lockstep/runtime/exchange/internal/exchange_round.h"

#include <algorithm>
#include <string>

namespace lockstep {
namespace {

/// The memory of some blocks, without gaps where they follow each other.
template <typename Byte>
std::vector<std::span<Byte>> memory_of(const ExchangeCall& call, const BlockRanges& ranges) {
  std::vector<std::span<Byte>> parts;
  for (const auto& range : ranges) {
    for (int number = range.first; number < range.first + range.count; ++number) {
      const auto block = call.blocks[static_cast<size_t>(number)];
      if (block.empty()) continue;
      if (!parts.empty() && parts.back().data() + parts.back().size() == block.data()) {
        parts.back() = {parts.back().data(), parts.back().size() + block.size()};
      } else {
        parts.push_back(block);
      }
    }
  }
  return parts;
}

std::vector<std::span<const uint8_t>> message_of(std::span<const uint8_t> header, const ExchangeCall& call,
                                                 const BlockRanges& blocks) {
  std::vector<std::span<const uint8_t>> parts{header};
  for (const auto& part : memory_of<const uint8_t>(call, blocks)) parts.push_back(part);
  return parts;
}

}  // namespace

uint64_t bytes_of_blocks(const ExchangeCall& call, const BlockRanges& ranges) {
  uint64_t bytes = 0;
  for (const auto& range : ranges) {
    for (int number = range.first; number < range.first + range.count; ++number)
      bytes += call.blocks[static_cast<size_t>(number)].size();
  }
  return bytes;
}

SentMessage::SentMessage(int peer, ExchangeLink& link, const MessageHeader& header, const ExchangeCall& call,
                         const BlockRanges& blocks)
    : peer_(peer), link_(link), header_(encode(header)), message_(message_of(header_, call, blocks)) {}

bool SentMessage::advance() {
  if (is_done()) return false;
  const size_t count = link_.send(message_.parts());
  message_.advance(count);
  sent_ += count;
  return count > 0;
}

ReceivedMessage::ReceivedMessage(int peer, ExchangeLink& link, MessageHeader expected,
                                 const ExchangeCall& call, const PlanReceive& receive,
                                 const SentMessage* before)
    : peer_(peer),
      link_(link),
      expected_(std::move(expected)),
      call_(call),
      is_added_(receive.is_added),
      before_(before),
      header_(kMessageHeaderBytes),
      payload_(memory_of<uint8_t>(call, receive.blocks)) {}

bool ReceivedMessage::advance() {
  bool has_advanced = false;
  if (!has_header_) {
    const size_t before = header_read_;
    if (!read_header()) return header_read_ > before;
    has_advanced = true;
  }
  while (!payload_.is_done()) {
    const size_t limit = std::min(payload_limit(), payload_.part().size());
    const size_t count = limit == 0  ? 0
                         : is_added_ ? add(limit)
                                     : link_.receive(payload_.part().first(limit));
    if (count == 0) break;
    payload_.advance(count);
    received_ += count;
    has_advanced = true;
  }
  return has_advanced;
}

/// Returns how many bytes of the payload may be overwritten now.
size_t ReceivedMessage::payload_limit() const {
  return before_ == nullptr || before_->is_done() ? SIZE_MAX : before_->payload_sent() - received_;
}

bool ReceivedMessage::read_header() {
  while (header_read_ < header_.size()) {
    const size_t count = link_.receive(std::span(header_).subspan(header_read_));
    if (count == 0) return false;
    header_read_ += count;
    if (header_read_ == kMessageHeaderBytes && header_.size() == kMessageHeaderBytes)
      header_.resize(kMessageHeaderBytes + text_bytes_of(header_));
  }
  check(decode_header(header_));
  has_header_ = true;
  return true;
}

void ReceivedMessage::check(const MessageHeader& header) const {
  if (header.generation != expected_.generation)
    throw ExchangeError(ExchangeError::Kind::kBadMessage, peer_,
                        "sent a message of another start or channel");
  if (header.sequence != expected_.sequence || header.fingerprint != expected_.fingerprint) {
    const std::string call = header.text.empty() ? "another collective" : header.text;
    const std::string number =
        header.sequence == expected_.sequence ? "" : " as collective #" + std::to_string(header.sequence);
    throw ExchangeError(ExchangeError::Kind::kMismatch, peer_, "called " + call + number);
  }
  // All ranks made this call, but some have other sizes, as an all-to-all may.
  constexpr uint64_t kMostBelieved = uint64_t{1} << 40;
  if (header.number == expected_.number && header.payload_bytes != expected_.payload_bytes &&
      header.payload_bytes < kMostBelieved) {
    throw ExchangeError(ExchangeError::Kind::kMismatch, peer_,
                        "sent " + std::to_string(header.payload_bytes) + " bytes, where " +
                            std::to_string(expected_.payload_bytes) + " were expected");
  }
  if (header.number != expected_.number || header.payload_bytes != expected_.payload_bytes)
    throw ExchangeError(ExchangeError::Kind::kBadMessage, peer_,
                        "sent message " + std::to_string(header.number) + " of " +
                            std::to_string(header.payload_bytes) + " bytes, but expected message " +
                            std::to_string(expected_.number) + " of " +
                            std::to_string(expected_.payload_bytes) + " bytes");
}

/// Adds as many whole elements as have arrived, and returns their bytes.
size_t ReceivedMessage::add(size_t limit) {
  const size_t element = call_.element_bytes;
  if (num_split_ == 0) {
    const auto bytes = link_.received();
    const size_t usable = std::min(bytes.size(), limit);
    const size_t count = usable / element;
    if (count > 0) {
      call_.combine(payload_.part().data(), bytes.data(), count);
      link_.consume(count * element);
      return count * element;
    }
    if (usable == 0) return 0;
  }
  if (limit < element) return 0;
  // An element that has not arrived whole, or lies across the end of a ring buffer.
  num_split_ += link_.receive(std::span(split_).subspan(num_split_, element - num_split_));
  if (num_split_ < element) return 0;
  call_.combine(payload_.part().data(), split_.data(), 1);
  num_split_ = 0;
  return element;
}

bool MessageRound::is_done() const {
  const auto done = [](const auto& message) { return message->is_done(); };
  return std::all_of(sent.begin(), sent.end(), done) && std::all_of(received.begin(), received.end(), done);
}

bool MessageRound::advance() {
  bool has_advanced = false;
  const auto receive = [&](ReceivedMessage& message) {
    has_advanced = with_peer(message.peer(), [&] { return message.advance(); }) || has_advanced;
  };
  // Sending first tells a peer that called another collective so, before this rank finds that out and ends.
  for (const auto& message : sent) {
    try {
      has_advanced = with_peer(message->peer(), [&] { return message->advance(); }) || has_advanced;
    } catch (const ExchangeError&) {
      // A peer that found this out first has closed the link. The message that it sent before tells more.
      for (const auto& other : received) {
        if (other->peer() == message->peer()) receive(*other);
      }
      throw;
    }
  }
  for (const auto& message : received) receive(*message);
  return has_advanced;
}

}  // namespace lockstep
