#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/shared/command_line/configuration_file.h"
#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/number_argument.h"
#include "lockstep/apps/shared/command_line/origin.h"

namespace lockstep::apps {

/// The arguments of a program, from its command line or a configuration file. Every error is a UsageError
/// that names the flag (or the file and the key), the expected value and the given one.
class Arguments {
 public:
  /// Returns true if the flag was given. Names are without dashes, such as `epochs`.
  bool has(const std::string& flag) const { return given_.contains(flag); }
  /// Returns true if a flag that takes no value is on; `--flag=false` is off.
  bool is_on(const std::string& flag) const { return has(flag) && text(flag) == "true"; }
  /// Returns the value as it was given. The flag must have been given.
  const std::string& text(const std::string& flag) const { return given_.at(flag).text; }
  std::string text(const std::string& flag, const std::string& otherwise) const {
    return has(flag) ? text(flag) : otherwise;
  }
  int64_t integer(const std::string& flag, const IntegerRange& range, int64_t otherwise) const;
  /// Returns a finite number above 0.
  double positive(const std::string& flag, double otherwise) const;
  /// Returns a number in [0, 1).
  double fraction(const std::string& flag, double otherwise) const;
  /// Returns a number in (0, 1).
  double factor(const std::string& flag, double otherwise) const;
  /// Returns a finite number of 0 or more.
  double amount(const std::string& flag, double otherwise) const;
  uint64_t seed(const std::string& flag, uint64_t otherwise) const;
  /// Returns one of `names`; for any other value the error suggests the closest.
  std::string name(const std::string& flag, const std::vector<std::string>& names,
                   const std::string& otherwise) const;
  /// Returns the value that belongs to the given name.
  template <typename Value>
  Value choice(const std::string& flag, const std::vector<std::pair<std::string, Value>>& choices,
               const Value& otherwise) const;
  /// Returns the pieces between commas. Empty pieces are kept, for the caller to refuse.
  std::vector<std::string> list(const std::string& flag) const;

  /// Returns the flag as errors name it: `--epochs`, or `runs/a/config.json: values.epochs`.
  std::string spelling(const std::string& flag) const;
  /// Throws: "--flag: expected `expected`, but got 'text'".
  [[noreturn]] void refuse(const std::string& flag, const std::string& expected) const;
  /// Throws: "--flag text: `reason`", for a valid value that conflicts with another flag.
  [[noreturn]] void refuse_together(const std::string& flag, const std::string& reason) const;

  /// Returns the origin of the flag's value; kDefault if it was not given.
  Origin origin(const std::string& flag) const;
  /// Returns the origins of all given flags.
  std::map<std::string, Origin> origins() const;
  /// Adds the file's values for flags that the command line does not give. Drops a value of the file if the
  /// command line gives an alternative to it; if the command line changes the value that it depends on; or if
  /// it needs one of several flags and none of them is left, either for these reasons or because files
  /// cannot give it.
  void add(const ConfigurationFile& file, const FlagTable& table);
  /// Throws if two alternatives of the table were given.
  void check_alternatives(const FlagTable& table) const;
  /// Throws if a flag was given (and is not off) without any of those that the table says it needs.
  void check_needs(const FlagTable& table) const;

  /// Returns the arguments without a flag, as many as the table names.
  const std::vector<std::string>& operands() const { return operands_; }

 private:
  bool lacks_others(const FlagNeed& need) const;

  friend Arguments parse_arguments(const FlagTable& table, const std::vector<std::string>& arguments);

  struct Given {
    std::string text;
    Origin origin;
  };

  std::map<std::string, Given> given_;
  std::vector<std::string> operands_;
};

/// Parses the arguments after the program's name. If a flag is given twice, the last value counts. Throws
/// UsageError for an unknown flag (suggesting the closest), a flag without its value, and more or fewer
/// operands than the table names. Operands may be missing if --help or --version is given.
Arguments parse_arguments(const FlagTable& table, const std::vector<std::string>& arguments);

template <typename Value>
Value Arguments::choice(const std::string& flag, const std::vector<std::pair<std::string, Value>>& choices,
                        const Value& otherwise) const {
  if (!has(flag)) return otherwise;
  std::vector<std::string> names;
  names.reserve(choices.size());
  for (const auto& choice : choices) names.push_back(choice.first);
  const std::string chosen = name(flag, names, "");
  for (const auto& [name, value] : choices) {
    if (name == chosen) return value;
  }
  return otherwise;
}

}  // namespace lockstep::apps
