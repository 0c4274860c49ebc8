#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/apps/train_gpt/data/text_codec.h"
#include "lockstep/apps/train_gpt/data/token_dataset.h"
#include "lockstep/apps/train_gpt/options/gpt_plan.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"

namespace lockstep::apps {

/// Sequences to train and to test on.
struct GptData {
  TokenDataset train;
  TokenDataset test;
  TextCodec codec;
  int64_t vocabulary_size = 0;  ///< tokens are below it
  std::string description;      ///< one line
};

/// Opens the data of the options for a model that begins as `base`. Blocks until text is turned into tokens.
/// `log` receives a line when that takes long; it may be empty. Throws DataError as TokenFiles and
/// open_tokenizer() do, and if there are too few sequences to train and to test on. Throws UsageError if
/// token files are given, but nothing says how many different tokens there are.
GptData open_gpt_data(const GptTrainOptions& options, const BaseModel& base,
                      const std::function<void(const std::string&)>& log);

}  // namespace lockstep::apps
