#include "lockstep/models/gpt/internal/configuration_fields.h"

#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using nlohmann::json;

constexpr size_t kMaxBytes = size_t{1} << 20;
constexpr size_t kMaxDepth = 16;
constexpr size_t kShownCharacters = 60;

/// Passed to the parser: refuses objects that are too deep or have a key twice, before they are complete.
class StructureCheck {
 public:
  explicit StructureCheck(const std::string& source) : source_(source) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    using Event = json::parse_event_t;
    if ((event == Event::object_start || event == Event::array_start) &&
        static_cast<size_t>(depth) >= kMaxDepth) {
      throw std::invalid_argument(
          fmt::format("[{}] expected at most {} levels, but got more", source_, kMaxDepth));
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second) {
      throw std::invalid_argument(fmt::format("[{}] {}: expected one value, but got two", source_,
                                              parsed.dump(-1, ' ', true, json::error_handler_t::replace)));
    }
    return true;
  }

 private:
  const std::string& source_;
  std::vector<std::set<std::string>> keys_;
};

std::string shown(const json* value) {
  if (value == nullptr) return "none";
  std::string text = value->dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShownCharacters) text = text.substr(0, kShownCharacters) + "...";
  return text;
}

/// The parser quotes the text, which may hold anything.
std::string printable(std::string text) {
  for (char& character : text)
    if (character < 0x20 || character > 0x7e) character = '?';
  return text;
}

}  // namespace

json parse_configuration(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes) {
    throw std::invalid_argument(
        fmt::format("[{}] expected at most {} bytes, but got {}", source, kMaxBytes, text.size()));
  }
  json parsed;
  StructureCheck check(source);
  try {
    parsed = json::parse(text, std::ref(check));
  } catch (const json::exception& error) {
    throw std::invalid_argument(
        fmt::format("[{}] expected JSON, but got: {}", source, printable(error.what())));
  }
  if (!parsed.is_object())
    throw std::invalid_argument(fmt::format("[{}] expected an object, but got {}", source, shown(&parsed)));
  return parsed;
}

ConfigurationFields::ConfigurationFields(const json& object, std::string source)
    : object_(object), source_(std::move(source)) {}

const json* ConfigurationFields::find(const char* name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigurationFields::has(const char* name) const {
  return find(name) != nullptr;
}

void ConfigurationFields::refuse(const char* name, const std::string& expected) const {
  throw std::invalid_argument(
      fmt::format("[{}] {}: expected {}, but got {}", source_, name, expected, shown(find(name))));
}

int64_t ConfigurationFields::size(const char* name) const {
  const json* value = find(name);
  // An unsigned number of more than 63 bits would turn negative.
  if (value == nullptr || !value->is_number_integer() || value->get<int64_t>() < 1)
    refuse(name, "an integer of 1 or more");
  return value->get<int64_t>();
}

int64_t ConfigurationFields::size_or(const char* name, int64_t otherwise) const {
  return has(name) ? size(name) : otherwise;
}

double ConfigurationFields::number(const char* name, std::optional<double> otherwise) const {
  const json* value = find(name);
  if (value == nullptr && otherwise) return *otherwise;
  if (value == nullptr || !value->is_number()) refuse(name, "a number");
  return value->get<double>();
}

bool ConfigurationFields::flag(const char* name, bool otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(name, "true or false");
  return value->get<bool>();
}

std::string ConfigurationFields::text(const char* name, const std::string& otherwise) const {
  const json* value = find(name);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(name, "a string");
  return value->get<std::string>();
}

ConfigurationFields ConfigurationFields::object(const char* name) const {
  const json* value = find(name);
  if (value == nullptr || !value->is_object()) refuse(name, "an object");
  return {*value, fmt::format("{}, {}", source_, name)};
}

void ConfigurationFields::require_flag(const char* name, bool expected) const {
  if (flag(name, expected) != expected) refuse(name, expected ? "true" : "false");
}

}  // namespace lockstep
