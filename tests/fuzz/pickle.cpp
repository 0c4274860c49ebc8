#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/tests/fuzz/fuzz.h"
#include "lockstep/training/formats/internal/pickle_reader.h"
#include "lockstep/training/formats/internal/pickle_writer.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const PeakMemory memory;
  const auto value =
      accepted<CheckpointError>([&] { return read_pickle(text_of(data, size), "fuzz.pt"); },
                                [](std::string_view message) {
                                  expect(message.starts_with("fuzz.pt: data.pkl: expected "), "the file");
                                  expect_plain_line(message);
                                });
  memory.expect_at_most(300, size, 1 << 17);
  if (!value) return 0;
  const std::string written = write_pickle(*value);
  const auto again = read_pickle(written, "fuzz.pt");
  expect(write_pickle(again) == written, "the same value out of what was written of it");
  return 0;
}

}  // namespace lockstep::fuzz
