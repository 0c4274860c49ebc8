#pragma once

#include <string>
#include <variant>
#include <vector>

#include "lockstep/apps/shared/command_line/setting.h"
#include "lockstep/apps/shared/strategy_choice/strategy_choice.h"
#include "lockstep/apps/train_ctr/ctr_options.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/apps/train_images/options/train_options.h"

namespace lockstep::apps {

/// The training that every strategy of a comparison runs: an image model as in train_images, a click model as
/// in train_ctr, or a language model as in train_gpt.
using ComparedWork = std::variant<TrainOptions, CtrOptions, GptTrainOptions>;

bool is_of_clicks(const ComparedWork& work);
StrategyChoice& strategy_choice_of(ComparedWork& work);

/// Returns the name of the model, as --model takes it.
std::string model_of(const ComparedWork& work);

/// Returns the plural name of what a speed counts: "images", "rows" or "tokens".
std::string examples_of(const ComparedWork& work);

/// Returns every value that a measurement may depend on, by its flag.
std::vector<Setting> settings_of(const ComparedWork& work);

/// Returns a one-line summary, such as "simple_cnn, 28x28, batches of 64, float32, adam at a learning rate of
/// 0.001".
std::string work_summary(const ComparedWork& work);

}  // namespace lockstep::apps
