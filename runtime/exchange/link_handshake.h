#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/runtime/base/net/message_authentication.h"

namespace lockstep {

// How a connection between two ranks begins if it is not encrypted. The rank that accepts it sends a greeting
// with random bytes. The other one answers with a hello, which tells who it is and proves that it knows the
// job's token. The answer proves the same of the rank that accepts. Messages are neither encrypted nor tagged
// afterwards.

/// The rank that connects, the rank it connects to, and the purpose.
struct LinkHello {
  uint32_t from = 0;  ///< rank
  uint32_t to = 0;
  uint32_t channel = 0;            ///< number of the channel that will use the link
  uint64_t generation = 0;         ///< of the job's start
  bool has_shared_memory = false;  ///< whether memory follows, or bytes go through the socket itself

  bool operator==(const LinkHello&) const = default;
};

inline constexpr size_t kLinkGreetingBytes = 38;
inline constexpr size_t kLinkHelloBytes = 91;
inline constexpr size_t kLinkAnswerBytes = 32;

/// Returns a new greeting.
std::vector<uint8_t> make_link_greeting();
/// Returns the answer to a greeting. Throws InvalidArgument if it is not a greeting.
std::vector<uint8_t> make_link_hello(const JobToken& token, const LinkHello& hello,
                                     std::span<const uint8_t> greeting);
/// Returns what the hello says; nullopt if it was not made for this greeting with this token.
std::optional<LinkHello> read_link_hello(const JobToken& token, std::span<const uint8_t> greeting,
                                         std::span<const uint8_t> hello);
/// Returns the answer to a hello.
JobToken::Tag make_link_answer(const JobToken& token, std::span<const uint8_t> greeting,
                               std::span<const uint8_t> hello);

}  // namespace lockstep
