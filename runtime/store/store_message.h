#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The purpose of connections to a job's store in a ChannelIdentity, and the name of its server there.
inline constexpr char kStorePurpose[] = "store";

/// A client's request to the store. The numbers are part of the format.
enum class StoreOp : uint8_t {
  kSet = 0,     ///< sets each key to its value
  kGet = 1,     ///< returns the values of all keys once all exist, or ends early once one of `unless` does
  kCheck = 2,   ///< returns the number 1 if all keys exist, and otherwise 0
  kAdd = 3,     ///< adds `number` to the decimal number at the key, 0 if it is missing; returns the sum
  kAppend = 4,  ///< appends the value to the key's
  kCompareSet = 5,  ///< see StoreTable
  kErase = 6,       ///< returns the number 1 if the key existed, and otherwise 0
  kCount = 7,       ///< returns the number of keys
  kCancel = 8,      ///< forgets the kGet with the id `number`, and is not answered
};

struct StoreRequest {
  uint64_t id = 0;  ///< chosen by the client, from 1 on; the reply has it, too
  StoreOp op = StoreOp::kSet;
  int64_t number = 0;
  std::vector<std::string> keys{};
  std::vector<std::string> values{};
  std::vector<std::string> unless{};

  bool operator==(const StoreRequest&) const = default;
};

/// The id of the reply that a server sends first, unasked: the client has a place.
inline constexpr uint64_t kStoreWelcome = 0;

enum class StoreStatus : uint8_t {
  kDone = 0,
  kEnded = 1,    ///< one of the keys in `unless` exists
  kRefused = 2,  ///< the request makes no sense or exceeds a limit; the first value says why
};

struct StoreReply {
  uint64_t id = 0;
  StoreStatus status = StoreStatus::kDone;
  int64_t number = 0;
  std::vector<std::string> values{};

  bool operator==(const StoreReply&) const = default;
};

/// Messages are preceded by their size in four bytes, and have at most 16 MiB without it.
inline constexpr size_t kMaxStoreMessageBytes = size_t{1} << 24;

/// Returns the message with its size in front. Throws InvalidArgument if it is too large.
std::vector<uint8_t> encode(const StoreRequest& request);
std::vector<uint8_t> encode(const StoreReply& reply);
/// Parses a message without its size. Throws InvalidArgument for bytes that encode() does not write. Safe for
/// untrusted input.
StoreRequest decode_store_request(std::span<const uint8_t> bytes);
StoreReply decode_store_reply(std::span<const uint8_t> bytes);

/// Cuts a stream of bytes into messages.
class StoreMessageReader {
 public:
  /// Adds bytes that have arrived.
  void add(std::span<const uint8_t> bytes);
  /// Returns the next whole message without its size, valid until the next call; nullopt if there is none.
  /// Throws InvalidArgument if the message is too large, before memory for it is allocated.
  std::optional<std::span<const uint8_t>> next();

 private:
  std::vector<uint8_t> bytes_;
  size_t begin_ = 0;
};

}  // namespace lockstep
