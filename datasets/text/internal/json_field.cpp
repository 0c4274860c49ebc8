#include "lockstep/datasets/text/internal/json_field.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_bytes.h"
#include "lockstep/datasets/text/internal/vocabulary.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxFileBytes = uint64_t{128} << 20;
constexpr int kMaxJsonDepth = 32;
/// Three times as many as a vocabulary of a million tokens needs. Values take up to 80 bytes of memory each.
constexpr size_t kMaxJsonValues = size_t{1} << 23;

/// Refuses what the parser itself accepts: deep nesting, a key twice, and values that take much more memory
/// than the file. The parser's own callback would take quadratic time for a list of objects.
class JsonGuard : public json::json_sax_t {
 public:
  explicit JsonGuard(const std::string& file) : file_(file) {}

  bool null() override { return count(); }
  bool boolean(bool) override { return count(); }
  bool number_integer(number_integer_t) override { return count(); }
  bool number_unsigned(number_unsigned_t) override { return count(); }
  bool number_float(number_float_t, const string_t&) override { return count(); }
  bool string(string_t&) override { return count(); }
  bool binary(binary_t&) override { return count(); }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return open();
  }
  bool start_array(size_t) override { return open(); }
  bool end_object() override {
    keys_.pop_back();
    return close();
  }
  bool end_array() override { return close(); }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second)
      throw DataError(file_, "JSON", "each key of an object once", shown_text(key) + " twice");
    return true;
  }
  bool parse_error(size_t, const std::string&, const json::exception&) override {
    return false;  // the parser fails at the same place
  }

 private:
  bool count() {
    if (++num_values_ > kMaxJsonValues)
      throw DataError(file_, "JSON", "at most " + std::to_string(kMaxJsonValues) + " values", "more");
    return true;
  }
  bool open() {
    if (++depth_ > kMaxJsonDepth)
      throw DataError(file_, "JSON",
                      "at most " + std::to_string(kMaxJsonDepth) + " levels of objects and arrays", "more");
    return count();
  }
  bool close() {
    --depth_;
    return true;
  }

  const std::string& file_;
  size_t num_values_ = 0;
  int depth_ = 0;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

std::string shown_text(std::string_view text, size_t max_bytes) {
  std::string shown = "'";
  for (const char byte : text.substr(0, max_bytes)) {
    const auto number = static_cast<uint8_t>(byte);
    if (number >= 0x20 && number < 0x7F) {
      shown += byte;
    } else {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      shown.append("\\x").append(1, kDigits[number >> 4]).append(1, kDigits[number & 0xF]);
    }
  }
  return shown + (text.size() > max_bytes ? "...'" : "'");
}

json read_json_file(const std::string& path) {
  const auto bytes = read_file(path, kMaxFileBytes);
  if (bytes.empty()) throw DataError(path, "JSON", "an object", "an empty file");
  JsonGuard guard(path);
  json::sax_parse(bytes.begin(), bytes.end(), &guard);
  try {
    return json::parse(bytes.begin(), bytes.end());
  } catch (const json::exception& error) {
    constexpr size_t kMaxMessage = 200;
    throw DataError(path + ": expected JSON, but it is broken: " + shown_text(error.what(), kMaxMessage));
  }
}

bool JsonField::is_null() const {
  return json_->is_null();
}
bool JsonField::is_array() const {
  return json_->is_array();
}
bool JsonField::is_object() const {
  return json_->is_object();
}

JsonField JsonField::member(const std::string& name) const {
  if (!json_->is_object()) refuse("an object");
  static const nlohmann::json missing;
  JsonField field = *this;
  const auto found = json_->find(name);
  field.json_ = found == json_->end() ? &missing : &*found;
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char byte) {
    return (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
  });
  field.path_ += is_plain ? (path_.empty() ? "" : ".") + name : "[" + shown_text(name) + "]";
  return field;
}

size_t JsonField::size() const {
  if (!json_->is_object() && !json_->is_array()) refuse("a list");
  return json_->size();
}

JsonField JsonField::element(size_t index) const {
  if (!json_->is_array()) refuse("a list");
  if (index >= json_->size())
    refuse("more than " + std::to_string(index) + " elements", std::to_string(json_->size()));
  JsonField field = *this;
  field.json_ = &(*json_)[index];
  field.path_ += "[" + std::to_string(index) + "]";
  return field;
}

std::string JsonField::string() const {
  if (!json_->is_string()) refuse("a string");
  return json_->get<std::string>();
}

bool JsonField::boolean(std::optional<bool> if_missing) const {
  if (json_->is_null() && if_missing) return *if_missing;
  if (!json_->is_boolean()) refuse("true or false");
  return json_->get<bool>();
}

uint64_t JsonField::number(uint64_t max) const {
  if (!json_->is_number_unsigned() || json_->get<uint64_t>() > max)
    refuse("an integer from 0 to " + std::to_string(max));
  return json_->get<uint64_t>();
}

uint32_t JsonField::id() const {
  return static_cast<uint32_t>(number(Vocabulary::kMaxSize - 1));
}

void JsonField::refuse(const std::string& expected) const {
  if (json_->is_null()) refuse(expected, "nothing");
  if (json_->is_object()) refuse(expected, "an object");
  if (json_->is_array()) refuse(expected, "a list");
  refuse(expected, json_->is_string() ? shown_text(json_->get_ref<const std::string&>()) : json_->dump());
}

void JsonField::refuse(const std::string& expected, const std::string& actual) const {
  throw DataError(*file_, path_.empty() ? "JSON" : path_, expected, actual);
}

}  // namespace lockstep
