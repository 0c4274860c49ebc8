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
//     "format_version": 1,                        whole number; a reader refuses a higher one than it knows
//     "program": "train_mnist",                   optional; another program's file is refused
//     "version": "0.1.0",                         optional, of Lockstep; not read
//     "values": {                                 keys are the flags without dashes
//       "epochs": {"value": 5, "origin": "default"},
//       "data": {"value": "/data/mnist", "origin": "environment", "name": "LOCKSTEP_MNIST_DIR"},
//       "seed": {"value": 7, "origin": "file", "name": "other.json"},
//       "optimizer": {"value": "sgd", "origin": "flag"},
//       "momentum": 0.5,                          who writes one by hand may leave the origin out
//       "devices": null                           not given, or without meaning beside the others
//     },
//     "resolved": {...}                           optional: what came of them, in the same form; not read
//   }
//
// Flags that take no value have true or false; those called N whole numbers; X numbers; LIST arrays of texts;
// all others texts.

/// What a configuration file gives.
struct ConfigurationFile {
  std::string path;
  /// The values as their flags would be typed, by the flag's name. Without those that belong to one process
  /// or one run (FlagRole::kProcess).
  std::map<std::string, std::string> texts;
};

/// Reads a configuration file of the table's program. Throws UsageError naming the file, and the path of the
/// key or the line and column, for a file that cannot be read, bad JSON, unknown keys (suggesting the
/// closest) and values of the wrong type. Whether a value is in its flag's range is for whoever reads the
/// flag.
ConfigurationFile read_configuration_file(const std::string& path, const FlagTable& table);

struct Configuration {
  std::string program;
  std::string version;
  std::vector<Setting> values;
  std::vector<Setting> resolved;
};

/// The text of a configuration file, with a line end after the last line. Throws InvalidArgument for a number
/// that is not finite, which JSON does not have.
std::string configuration_json(const Configuration& configuration);

}  // namespace lockstep::apps
