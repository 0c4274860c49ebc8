#include "lockstep/apps/shared/command_line/configuration_file.h"

#include <charconv>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/tests/fuzz/fuzz.h"

namespace lockstep::fuzz {
namespace {

using namespace apps;

/// A flag of each kind.
FlagTable table() {
  return {.program = "fuzz",
          .summary = "",
          .operands = {},
          .flags = {{.group = "", .name = "h,help", .value = "", .text = "", .role = FlagRole::kAction},
                    {.group = "", .name = "epochs", .value = "N", .text = ""},
                    {.group = "", .name = "rate", .value = "X", .text = ""},
                    {.group = "", .name = "devices", .value = "LIST", .text = ""},
                    {.group = "", .name = "data", .value = "PATH", .text = ""},
                    {.group = "", .name = "shuffle", .value = "", .text = ""},
                    {.group = "", .name = "rank", .value = "N", .text = "", .role = FlagRole::kProcess}}};
}

template <typename Number>
std::optional<Number> number_in(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<std::string> pieces_of(const std::string& text) {
  std::vector<std::string> pieces;
  size_t begin = 0;
  while (true) {
    const size_t comma = text.find(',', begin);
    pieces.push_back(text.substr(begin, comma - begin));
    if (comma == std::string::npos) return pieces;
    begin = comma + 1;
  }
}

SettingValue value_of(const Flag& flag, const std::string& text) {
  if (flag.value.empty()) {
    expect(text == "true" || text == "false", "a truth value");
    return text == "true";
  }
  if (flag.value == "LIST") return pieces_of(text);
  if (flag.value == "N") {
    if (const auto number = number_in<int64_t>(text)) return *number;
    const auto number = number_in<uint64_t>(text);
    expect(number.has_value(), "a whole number");
    return *number;
  }
  if (flag.value == "X") {
    const auto number = number_in<double>(text);
    expect(number.has_value(), "a number");
    return *number;
  }
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const FlagTable flags = table();
  const MemoryFile file(std::span(data, size));
  const auto read =
      accepted<UsageError>([&] { return read_configuration_file(file.path(), flags); }, expect_plain_line);
  if (!read) return 0;
  Configuration configuration{.program = flags.program, .version = "0", .values = {}, .resolved = {}};
  for (const auto& [name, text] : read->texts) {
    const Flag* flag = find_flag(flags, name);
    expect(flag != nullptr && is_read_from_files(*flag), "settings only");
    configuration.values.push_back({.name = name, .value = value_of(*flag, text), .origin = {}});
  }
  const MemoryFile written(std::string_view(configuration_json(configuration)));
  const auto again = read_configuration_file(written.path(), flags);
  expect(again.texts.size() == read->texts.size(), "as many values as were written");
  for (const auto& [name, text] : again.texts) {
    const std::string& before = read->texts.at(name);
    // A whole number beyond a double's precision is rounded if a floating-point number is expected.
    const bool is_same =
        name == "rate" ? number_in<double>(text) == number_in<double>(before) : text == before;
    expect(is_same, "the same values out of what was written of them");
  }
  return 0;
}

}  // namespace lockstep::fuzz
