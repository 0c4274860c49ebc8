#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Reads a JSON file. Throws DataError naming the file if it is larger than 128 MiB, is no JSON, is nested
/// more than 32 levels deep, has more than 8,388,608 values, or has an object with a key twice.
nlohmann::json read_json_file(const std::string& path);

/// Returns a text from a file in quotes, as one line of printable ASCII of up to about `max_bytes`, for
/// messages.
std::string shown_text(std::string_view text, size_t max_bytes = 60);

/// A value in a JSON file. Functions throw DataError naming the file and the field if the value is not as
/// they expect. Refers to the file's JSON, which must outlive it.
class JsonField {
 public:
  JsonField(const std::string& file, const nlohmann::json& root) : file_(&file), json_(&root) {}

  const nlohmann::json& json() const { return *json_; }
  const std::string& file() const { return *file_; }
  const std::string& path() const { return path_; }

  bool is_null() const;  ///< also if it is missing
  bool is_array() const;
  bool is_object() const;
  /// Returns a member of an object; one that is missing is null.
  JsonField member(const std::string& name) const;
  size_t size() const;  ///< of an array or an object
  JsonField element(size_t index) const;

  std::string string() const;
  /// Returns the string in "type".
  std::string type() const { return member("type").string(); }
  bool boolean(std::optional<bool> if_missing = std::nullopt) const;
  /// Returns an integer from 0 to `max`.
  uint64_t number(uint64_t max) const;
  /// Returns an id of Vocabulary.
  uint32_t id() const;

  [[noreturn]] void refuse(const std::string& expected) const;
  [[noreturn]] void refuse(const std::string& expected, const std::string& actual) const;

 private:
  const std::string* file_;
  const nlohmann::json* json_;
  std::string path_;
};

}  // namespace lockstep
