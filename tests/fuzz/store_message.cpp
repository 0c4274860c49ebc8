#include "lockstep/runtime/store/store_message.h"

#include <algorithm>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/store/store_table.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

constexpr size_t kSizeBytes = 4;

/// Gives a table all requests that the bytes hold, and expects at most one answer to each.
void handle_all(std::span<const uint8_t> bytes) {
  size_t num_asked = 0;
  size_t num_answers = 0;
  StoreTable table({.client_bytes = 10'000, .client_waits = 100}, [&](uint64_t, const StoreReply& reply) {
    ++num_answers;
    expect(decode_store_reply(std::span<const uint8_t>(encode(reply)).subspan(kSizeBytes)) == reply,
           "the reply again");
  });
  StoreMessageReader reader;
  // In two parts, as bytes arrive.
  for (const auto part : {bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)}) {
    reader.add(part);
    while (true) {
      const auto message = accepted<InvalidArgument>([&] { return reader.next(); });
      if (!message || !*message) break;
      const auto request = accepted<InvalidArgument>([&] { return decode_store_request(**message); });
      if (!request) continue;
      const auto written = encode(*request);
      expect(std::ranges::equal(std::span(written).subspan(kSizeBytes), **message), "the request again");
      table.handle(++num_asked % 2, *request);
    }
  }
  expect(num_answers <= num_asked, "at most one answer to a request");
  table.forget(0);
  table.forget(1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  const auto reply = accepted<InvalidArgument>([&] { return decode_store_reply(bytes); });
  if (reply)
    expect(std::ranges::equal(std::span<const uint8_t>(encode(*reply)).subspan(kSizeBytes), bytes),
           "the reply's bytes again");
  handle_all(bytes);
  return 0;
}

}  // namespace lockstep::fuzz
