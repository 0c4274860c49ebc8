#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/train_mnist/options/train_options.h"

namespace lockstep::apps {

// What a program's arguments say about one group of the options each; options whose flags were not given, or
// which the program does not have, stay. All throw UsageError naming the flag, what it takes and what was
// given.

void read_data(const Arguments& given, TrainOptions& options);
void read_model(const Arguments& given, TrainOptions& options);
void read_training(const Arguments& given, TrainOptions& options);
/// What of the run is recorded, and where.
void read_record(const Arguments& given, TrainOptions& options);
/// What the run is checked for, and saved for, so that it can go on.
void read_backup(const Arguments& given, TrainOptions& options);

}  // namespace lockstep::apps
