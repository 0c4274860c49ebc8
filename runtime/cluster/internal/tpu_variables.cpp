#include "lockstep/runtime/cluster/internal/tpu_variables.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <set>
#include <string_view>

#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

constexpr char kTpu[] = "TPU";
/// A slice has fewer chips by far; the bound keeps products within an int.
constexpr int64_t kMostTpuDevices = 1 << 20;

std::vector<std::string_view> split_at(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Returns none unless `text` consists of decimal digits that spell a number of `least` or more.
std::optional<int> number_of(std::string_view text, int least) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > kMostTpuDevices) return std::nullopt;
  return value;
}

/// Parses each part of a list by `parse`, which gets the part and its name in errors. Refuses a value that is
/// listed twice, for its processes would use the same chips.
template <typename Value>
std::vector<Value> parse_tpu_list(
    const std::string& text, const std::string& name,
    const std::function<Value(std::string_view, const ConfigurationValue&)>& parse) {
  std::vector<Value> values;
  std::set<Value> seen;
  for (const std::string_view part : split_at(text, ",")) {
    const ConfigurationValue place{.source = kTpu, .name = name + "[" + std::to_string(values.size()) + "]"};
    values.push_back(parse(part, place));
    if (seen.insert(values.back()).second) continue;
    const auto first = std::find(values.begin(), values.end(), values.back()) - values.begin();
    refuse_value(place, "listed once, or two processes would use one chip",
                 quoted_excerpt(part) + " as in " + name + "[" + std::to_string(first) + "]");
  }
  return values;
}

}  // namespace

TpuVariables::TpuVariables(const Environment& environment)
    : launcher_(
          [environment](const std::string& name) {
            auto value = environment(name);
            return value && value->empty() ? std::nullopt : value;
          },
          kTpu) {}

std::optional<std::vector<std::string>> TpuVariables::hosts() const {
  const auto text = launcher_.find_text(kTpuWorkerHostnames);
  if (!text) return std::nullopt;
  return parse_tpu_list<std::string>(*text, kTpuWorkerHostnames, parse_host);
}

std::optional<std::vector<HostPort>> TpuVariables::addresses(const std::string& name) const {
  const auto text = launcher_.find_text(name);
  if (!text) return std::nullopt;
  return parse_tpu_list<HostPort>(*text, name, [](std::string_view part, const ConfigurationValue& place) {
    return parse_host_port(part, place);
  });
}

std::string TpuVariables::visible_chips_name() const {
  return either_of("TPU_VISIBLE_CHIPS", "TPU_VISIBLE_DEVICES");
}

std::optional<std::vector<int>> TpuVariables::visible_chips() const {
  const std::string name = visible_chips_name();
  const auto text = launcher_.find_text(name);
  if (!text) return std::nullopt;
  return parse_tpu_list<int>(*text, name, [](std::string_view part, const ConfigurationValue& place) {
    const auto chip = number_of(part, 0);
    if (!chip) refuse_value(place, "the number of a chip, 0 or more", quoted_excerpt(part));
    return *chip;
  });
}

std::optional<int> TpuVariables::product(const std::string& name) const {
  const auto text = launcher_.find_text(name);
  if (!text) return std::nullopt;
  const auto sizes = split_at(*text, ",xX");
  int64_t product = 1;
  for (const std::string_view size : sizes) {
    const auto number = number_of(size, 1);
    product = number ? product * *number : 0;
    if (product < 1 || product > kMostTpuDevices || sizes.size() > 4) {
      launcher_.refuse(name, "up to four sizes of 1 or more, such as 2,2,1");
    }
  }
  return static_cast<int>(product);
}

std::string TpuVariables::either_of(const std::string& name, const std::string& older) const {
  return !launcher_.has(name) && launcher_.has(older) ? older : name;
}

int TpuVariables::devices_per_chip() const {
  return launcher_.find_text("TPU_ACCELERATOR_TYPE").value_or("").starts_with("tpu7x") ? 2 : 1;
}

}  // namespace lockstep
