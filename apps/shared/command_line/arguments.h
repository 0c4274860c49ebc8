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

/// The arguments that a program was given, on its command line or by a configuration file. Every error is a
/// UsageError that names the flag (or the file and the key), what it takes and what was given.
class Arguments {
 public:
  /// Whether the flag was given; names are without dashes, `epochs`.
  bool has(const std::string& flag) const { return given_.contains(flag); }
  /// Of a flag that takes no value; `--flag=false` is off.
  bool is_on(const std::string& flag) const { return has(flag) && text(flag) == "true"; }
  /// The value as it was given. The flag must have been.
  const std::string& text(const std::string& flag) const { return given_.at(flag).text; }
  std::string text(const std::string& flag, const std::string& otherwise) const {
    return has(flag) ? text(flag) : otherwise;
  }
  int64_t integer(const std::string& flag, const IntegerRange& range, int64_t otherwise) const;
  /// A finite number above 0.
  double positive(const std::string& flag, double otherwise) const;
  /// A number from 0 up to, but not including, 1.
  double fraction(const std::string& flag, double otherwise) const;
  /// A number above 0 and below 1.
  double factor(const std::string& flag, double otherwise) const;
  /// A finite number of 0 or more.
  double amount(const std::string& flag, double otherwise) const;
  uint64_t seed(const std::string& flag, uint64_t otherwise) const;
  /// One of `names`; suggests the closest for another.
  std::string name(const std::string& flag, const std::vector<std::string>& names,
                   const std::string& otherwise) const;
  /// The value that the given one of a few names stands for.
  template <typename Value>
  Value choice(const std::string& flag, const std::vector<std::pair<std::string, Value>>& choices,
               const Value& otherwise) const;
  /// Pieces between commas. An empty one stays, for whoever reads them to refuse.
  std::vector<std::string> list(const std::string& flag) const;

  /// How errors name the flag: `--epochs`, or `runs/a/config.json: values.epochs`.
  std::string spelling(const std::string& flag) const;
  /// Throws: "--flag: expected `expected`, but got 'text'".
  [[noreturn]] void refuse(const std::string& flag, const std::string& expected) const;
  /// Throws: "--flag text: `reason`", for a flag whose value is right but does not go with another.
  [[noreturn]] void refuse_beside(const std::string& flag, const std::string& reason) const;
  /// Throws where `flag` was given (and is not off), but `other` was not.
  void require_beside(const std::string& flag, const std::string& other) const;

  /// Who gave the flag's value; kDefault where nobody did.
  Origin origin(const std::string& flag) const;
  /// The origins of all that was given.
  std::map<std::string, Origin> origins() const;
  /// Takes what a configuration file gives, where the command line does not give it already. A value of the
  /// file's also gives way to a flag of the command line that it is an alternative to, and goes where the
  /// command line changes what it depends on, or does not give that and the file cannot.
  void add(const ConfigurationFile& file, const FlagTable& table);
  /// Throws where two alternatives of the table were given.
  void check_alternatives(const FlagTable& table) const;

  /// The arguments without a flag, as many as the table names.
  const std::vector<std::string>& operands() const { return operands_; }

 private:
  friend Arguments parse_arguments(const FlagTable& table, const std::vector<std::string>& arguments);

  struct Given {
    std::string text;
    Origin origin;
  };

  std::map<std::string, Given> given_;
  std::vector<std::string> operands_;
};

/// Reads the arguments after the program's name; of a flag given twice, the last counts. Throws UsageError
/// for a flag that the table does not have (suggesting the closest), one without its value, and for more or
/// fewer operands than the table names. Operands may be missing where --help or --version is given.
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
