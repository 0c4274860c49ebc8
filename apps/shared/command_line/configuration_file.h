#pragma once

#include <map>
#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/flag_table.h"
#include "lockstep/apps/shared/command_line/setting.h"

namespace lockstep::apps {

// A configuration file is JSON:
//
//   {
//     "format_version": 1,                        whole number; readers refuse versions newer than they know
//     "program": "train_images",                   optional; another program's file is refused
//     "version": "0.1.0",                         optional, Lockstep's version; not read
//     "values": {                                 keys are the flags without dashes
//       "epochs": {"value": 5, "origin": "default"},
//       "data": {"value": "/data/mnist", "origin": "environment", "name": "LOCKSTEP_MNIST_DIR"},
//       "seed": {"value": 7, "origin": "file", "name": "other.json"},
//       "optimizer": {"value": "sgd", "origin": "flag"},
//       "momentum": 0.5,                          short form without origin, for hand-written files
//       "devices": null                           not given, or meaningless with the others
//     },
//     "resolved": {...}                           optional: the resolved values, in the same form; not read
//   }
//
// Flags that take no value are true or false. The value name of the others decides: N is a whole number, X a
// number, LIST an array of strings, and any other name a string.

/// The contents of a configuration file.
struct ConfigurationFile {
  std::string path;
  /// The values as they would be typed, by the flag's name, except for flags that belong to one process or
  /// one run (FlagRole::kProcess).
  std::map<std::string, std::string> texts;
};

/// Reads a configuration file for the table's program. Throws UsageError naming the file, and the path of the
/// key or the line and column, if the file cannot be read, is not valid JSON, has an unknown key (suggesting
/// the closest) or a value of the wrong type. Does not check whether a value is in its flag's range.
ConfigurationFile read_configuration_file(const std::string& path, const FlagTable& table);

struct Configuration {
  std::string program;
  std::string version;
  std::vector<Setting> values;
  std::vector<Setting> resolved;
};

/// Returns the text of a configuration file, ending in a newline. Throws InvalidArgument if a number is not
/// finite, which JSON cannot represent.
std::string configuration_json(const Configuration& configuration);

}  // namespace lockstep::apps
