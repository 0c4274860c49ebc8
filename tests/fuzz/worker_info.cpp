#include "lockstep/runtime/workers/worker_info.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(text_of(data, size));
  const auto card = accepted<InvalidArgument>([&] { return WorkerInfo::parse(text); }, expect_plain_line);
  if (!card) return 0;
  expect(card->text() == text, "nothing but what text() writes");
  expect(card->heartbeat_port >= 0 && card->heartbeat_port <= 65535, "a port");
  expect(card->num_replicas >= 1 && card->num_replicas <= 65536, "a number of replicas that can be added up");
  expect(!card->difference(*card), "a card that is like itself");
  return 0;
}

}  // namespace lockstep::fuzz
