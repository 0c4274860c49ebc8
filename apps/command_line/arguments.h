#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/apps/command_line/flag_table.h"
#include "lockstep/apps/command_line/number_argument.h"

namespace lockstep::apps {

/// The arguments that a program was given. Every error is a UsageError that names the flag, what it takes and
/// what was given.
class Arguments {
 public:
  /// Whether the flag was given; names are without dashes, `epochs`.
  bool has(const std::string& flag) const { return texts_.contains(flag); }
  /// Of a flag that takes no value; `--flag=false` is off.
  bool is_on(const std::string& flag) const { return has(flag) && text(flag) == "true"; }
  /// The value as it was given. The flag must have been.
  const std::string& text(const std::string& flag) const { return texts_.at(flag); }
  std::string text(const std::string& flag, const std::string& otherwise) const {
    return has(flag) ? text(flag) : otherwise;
  }
  int64_t integer(const std::string& flag, const IntegerRange& range, int64_t otherwise) const;
  /// A finite number above 0.
  double positive(const std::string& flag, double otherwise) const;
  /// A number from 0 up to, but not including, 1.
  double fraction(const std::string& flag, double otherwise) const;
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

  /// Throws where both flags were given.
  void forbid(const std::string& flag, const std::string& other) const;
  /// Throws: "--flag: expected `expected`, but got 'text'", without the end for a flag that takes no value.
  [[noreturn]] void refuse(const std::string& flag, const std::string& expected) const;

  /// The arguments without a flag, as many as the table names.
  const std::vector<std::string>& operands() const { return operands_; }

 private:
  friend Arguments parse_arguments(const FlagTable& table, const std::vector<std::string>& arguments);

  std::map<std::string, std::string> texts_;
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
  for (const auto& choice : choices) names.push_back(choice.first);
  const std::string chosen = name(flag, names, "");
  for (const auto& [name, value] : choices) {
    if (name == chosen) return value;
  }
  return otherwise;
}

}  // namespace lockstep::apps
