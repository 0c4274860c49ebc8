#pragma once

#include <string>
#include <vector>

namespace lockstep::apps {

/// What becomes of a flag's value in configuration files.
enum class FlagRole {
  kSetting,  ///< is written into them, and read from them
  kProcess,  ///< belongs to one run or one process: is written, not read
  kAction,   ///< makes the program do something else: neither
};

/// One flag of a program.
struct Flag {
  std::string group;  ///< under which help_text() lists it; empty: for the program itself, not listed
  std::string name;   ///< with its one-letter form in front where it has one, `h,help`
  std::string value;  ///< what its value is called; empty: takes none
  std::string text;
  std::string otherwise = "";  ///< the default, where a value can be one
  FlagRole role = FlagRole::kSetting;
};

/// Two flags that have to do with each other; names are without dashes.
struct FlagPair {
  std::string flag;
  std::string other;
};

/// What a program takes on its command line. Its groups are listed in the order of their first flags.
struct FlagTable {
  std::string program;
  std::string summary;  ///< one sentence: what the program does
  std::vector<std::string>
      operands;  ///< what its arguments without a flag are called, such as DIR; all needed
  std::vector<Flag> flags;
  std::string after;                   ///< what --help ends with: examples, exit codes
  std::vector<FlagPair> alternatives;  ///< of which one may be given only
  std::vector<FlagPair> dependents;    ///< `flag` means something by what `other` is
};

/// The flags that every program has: --help and --version.
std::vector<Flag> common_flags();

/// The flag without its one-letter form: `help`.
std::string long_name(const Flag& flag);

/// Every flag that is listed as it is typed, such as `--epochs`.
std::vector<std::string> flag_spellings(const FlagTable& table);

/// The flag called `name` (without dashes), or null.
const Flag* find_flag(const FlagTable& table, const std::string& name);

/// What --help prints.
std::string help_text(const FlagTable& table);

}  // namespace lockstep::apps
