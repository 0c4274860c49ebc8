#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// How configuration files treat a flag's value.
enum class FlagRole {
  kSetting,    ///< decides the result of a run: written to files and read from them
  kOperation,  ///< written and read, too, but the result is the same: how often to save, for example
  kProcess,    ///< belongs to one run or one process: written, but not read
  kAction,     ///< makes the program do something else: neither written nor read
};

/// One flag of a program.
struct Flag {
  std::string group;  ///< heading in help_text(); empty: for the program itself, not listed
  std::string name;   ///< long name, with the one-letter form in front if there is one: `h,help`
  std::string value;  ///< name of its value; empty: takes no value
  std::string text;
  std::string otherwise = "";  ///< default value, if there is one
  FlagRole role = FlagRole::kSetting;
};

/// Returns whether configuration files give the flag's value to later runs.
inline bool is_read_from_files(const Flag& flag) {
  return flag.role == FlagRole::kSetting || flag.role == FlagRole::kOperation;
}

/// Two related flags; names are without dashes.
struct FlagPair {
  std::string flag;
  std::string other;
};

/// A flag that has an effect only with certain others; names are without dashes.
struct FlagNeed {
  std::string flag;
  std::vector<std::string> others;  ///< at least one of them must be given
};

/// The command line of a program. Groups are listed in the order of their first flags.
struct FlagTable {
  std::string program;
  /// The program's earlier name, if it had one. Configuration files that older versions wrote contain it.
  std::string former_program = {};
  std::string summary;                ///< one sentence that says what the program does
  std::vector<std::string> operands;  ///< names of the required arguments without a flag, such as DIR
  std::vector<Flag> flags;
  std::string after;                   ///< end of the --help text: examples, exit codes
  std::vector<FlagPair> alternatives;  ///< at most one flag of each pair may be given
  std::vector<FlagPair> dependents;    ///< the meaning of `flag` depends on the value of `other`
  /// A configuration file may give such a flag although it cannot give any of the others, because those
  /// belong to one run (FlagRole::kProcess): Arguments::add() then leaves it out.
  std::vector<FlagNeed> needs;
};

/// Returns the flags of every program: --help and --version.
std::vector<Flag> common_flags();

/// Returns the flag's name without the one-letter form: `help`.
std::string long_name(const Flag& flag);

/// Returns every listed flag as it is typed, such as `--epochs`.
std::vector<std::string> flag_spellings(const FlagTable& table);

/// Returns the flag called `name` (without dashes), or null.
const Flag* find_flag(const FlagTable& table, const std::string& name);

/// Returns the text that --help prints. `program` is the program as it was called: if that is a path, the
/// text says how to put its folder into PATH, so that the examples can be typed as they stand.
std::string help_text(const FlagTable& table, const std::string& program = "");

}  // namespace lockstep::apps
