#pragma once

#include <string>
#include <vector>

#include "lockstep/apps/shared/command_line/arguments.h"
#include "lockstep/apps/train_images/options/train_options.h"

namespace lockstep::apps {

// Each function sets one group of options from a program's arguments. Options whose flags were not given, or
// that the program does not have, keep their values. All throw UsageError naming the flag, the expected and
// the given value.

void read_data(const Arguments& given, TrainOptions& options);
void read_model(const Arguments& given, TrainOptions& options);
/// Reads --augment, after the model and its image size.
void read_augment(const Arguments& given, TrainOptions& options);
void read_training(const Arguments& given, TrainOptions& options);
/// Reads --find-learning-rate, after the options of the run.
void read_learning_rate_finder(const Arguments& given, TrainOptions& options);

}  // namespace lockstep::apps
