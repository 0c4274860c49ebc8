#include "lockstep/runtime/workers/worker_info.h"

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(text_of(data, size));
  const auto info = accepted<InvalidArgument>([&] { return WorkerInfo::parse(text); }, expect_plain_line);
  if (!info) return 0;
  expect(info->text() == text, "nothing but what text() writes");
  expect(info->heartbeat_port >= 0 && info->heartbeat_port <= 65535, "a port");
  expect(info->num_replicas >= 1 && info->num_replicas <= 65536, "a number of replicas that can be added up");
  expect(!info->difference(*info), "a card that is like itself");
  return 0;
}

}  // namespace lockstep::fuzz
