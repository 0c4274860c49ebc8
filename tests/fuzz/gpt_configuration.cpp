#include "lockstep/models/gpt/gpt_configuration.h"

#include <stdexcept>

#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto text = text_of(data, size);
  const auto read = [&]() -> std::optional<GptOptions> {
    const PeakMemory memory;
    auto options = accepted<std::invalid_argument>([&] { return parse_gpt_configuration(text, "fuzz"); },
                                                   [](std::string_view message) {
                                                     expect(message.starts_with("[fuzz"),
                                                            "a message that names the source");
                                                     expect_plain_line(message);
                                                   });
    memory.expect_at_most(400, size, 100'000);
    return options;
  };
  const auto options = read();
  if (!options) return 0;
  expect(num_gpt_parameters(*options) > 0, "a number of parameters that fits");
  const std::string written = gpt_configuration_text(*options);
  const GptOptions again = parse_gpt_configuration(written, "written");
  expect(gpt_configuration_text(again) == written, "the same configuration out of what was written of it");
  expect(num_gpt_parameters(again) == num_gpt_parameters(*options), "the same number of parameters");
  return 0;
}

}  // namespace lockstep::fuzz
