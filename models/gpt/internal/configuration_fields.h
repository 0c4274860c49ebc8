#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

/// Parses the text of a config.json, which need not be trusted: at most 1 MiB, 16 levels, and each key once.
/// Throws std::invalid_argument naming `source` for anything but an object.
nlohmann::json parse_configuration(std::string_view text, const std::string& source);

/// Fields of a JSON object. A field with the value null counts as missing. Errors are std::invalid_argument
/// and name the source and the field. The object must outlive this.
class ConfigurationFields {
 public:
  ConfigurationFields(const nlohmann::json& object, std::string source);

  bool has(const char* name) const;
  /// Returns an integer of 1 or more.
  int64_t size(const char* name) const;
  int64_t size_or(const char* name, int64_t otherwise) const;
  /// Without `otherwise`, the field must be there.
  double number(const char* name, std::optional<double> otherwise) const;
  bool flag(const char* name, bool otherwise) const;
  std::string text(const char* name, const std::string& otherwise) const;
  ConfigurationFields object(const char* name) const;

  /// Refuses a field that is there and has another value.
  void require_flag(const char* name, bool expected) const;
  [[noreturn]] void refuse(const char* name, const std::string& expected) const;

 private:
  const nlohmann::json* find(const char* name) const;

  const nlohmann::json& object_;
  std::string source_;
};

}  // namespace lockstep
