#include "lockstep/runtime/base/internal/bounded_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

using nlohmann::json;

bool is_plain_word(const std::string& key) {
  return !key.empty() && key.size() <= 40 && std::all_of(key.begin(), key.end(), [](char character) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           (character >= '0' && character <= '9') || character == '_' || character == '-';
  });
}

/// The parser's explanation, without its prefix, the position, and what it expected.
std::string reason_of(const std::string& message) {
  size_t begin = message.find("] ");
  begin = begin == std::string::npos ? 0 : begin + 2;
  if (message.compare(begin, 14, "parse error at") == 0) {
    const size_t colon = message.find(": ", begin);
    if (colon != std::string::npos) begin = colon + 2;
  }
  return excerpt(std::string_view(message).substr(begin, message.find("; ", begin) - begin));
}

/// Visits every part of the text while it is parsed, and keeps only the path to it.
class JsonInspector : public json::json_sax_t {
 public:
  JsonInspector(std::string_view text, const BoundedJsonOptions& options) : text_(text), options_(options) {}

  bool null() override { return begin_value(); }
  bool boolean(bool) override { return begin_value(); }
  bool number_integer(number_integer_t) override { return begin_value(); }
  bool number_unsigned(number_unsigned_t) override { return begin_value(); }
  bool number_float(number_float_t, const string_t&) override { return begin_value(); }
  bool string(string_t&) override { return begin_value(); }
  bool binary(binary_t&) override { return begin_value(); }
  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& key) override {
    Container& object = open_.back();
    object.key = key;
    if (!object.keys.insert(key).second) {
      refuse_value({.source = options_.source, .name = path()}, "given once",
                   "the key " + quoted_excerpt(key) + " twice");
    }
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& error) override {
    constexpr size_t kShown = 20;
    const size_t end = std::min(position, text_.size());  // just after the wrong byte
    const size_t line_begin = text_.substr(0, std::max<size_t>(position, 1) - 1).rfind('\n') + 1;
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(line_begin), '\n') + 1;
    const size_t shown = std::max(line_begin, end - std::min(end, kShown));
    throw InvalidArgument("[" + options_.source + "] expected JSON, but got " +
                          quoted_excerpt(text_.substr(shown, end - shown)) + " up to line " +
                          std::to_string(line) + ", column " +
                          std::to_string(std::max(position, line_begin + 1) - line_begin) + ": " +
                          reason_of(error.what()));
  }

 private:
  struct Container {
    bool is_object;
    size_t num_values = 0;
    std::string key;
    std::set<std::string> keys;
  };

  bool begin_value() {
    if (!open_.empty()) ++open_.back().num_values;
    return true;
  }

  bool open(bool is_object) {
    begin_value();
    if (open_.size() == options_.max_depth) {
      refuse_value({.source = options_.source, .name = path()},
                   "a plain value at this depth (" + std::to_string(options_.max_depth) + ")",
                   is_object ? "an object" : "an array");
    }
    open_.push_back({.is_object = is_object, .num_values = 0, .key = "", .keys = {}});
    return true;
  }

  bool close() {
    open_.pop_back();
    return true;
  }

  std::string path() const {
    std::string path;
    for (const Container& container : open_) {
      if (container.is_object) {
        path = json_path(path, container.key);
      } else {
        path.append("[").append(std::to_string(container.num_values - 1)).append("]");
      }
    }
    return path;
  }

  std::string_view text_;
  const BoundedJsonOptions& options_;
  std::vector<Container> open_;
};

}  // namespace

std::string json_path(const std::string& parent, const std::string& key) {
  if (!is_plain_word(key)) return parent + "[\"" + excerpt(key) + "\"]";
  return parent.empty() ? key : parent + "." + key;
}

json parse_bounded_json(std::string_view text, const BoundedJsonOptions& options) {
  if (text.size() > options.max_bytes) {
    throw InvalidArgument("[" + options.source + "] expected at most " + std::to_string(options.max_bytes) +
                          " bytes, but got " + std::to_string(text.size()));
  }
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    throw InvalidArgument("[" + options.source + "] expected JSON, but got an empty string");
  }
  JsonInspector inspector(text, options);
  json::sax_parse(text, &inspector);
  return json::parse(text);
}

}  // namespace lockstep
