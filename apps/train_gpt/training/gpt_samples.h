#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/apps/train_gpt/data/text_codec.h"
#include "lockstep/apps/train_gpt/options/gpt_train_options.h"
#include "lockstep/models/gpt/gpt.h"
#include "lockstep/runtime/replicas/mirrored.h"
#include "lockstep/training/reporting/records/run_record.h"
#include "lockstep/training/trainer/callback.h"

namespace lockstep::apps {

/// Returns the text of `tokens` after that of `prompt`. A tokenizer may begin a text otherwise than it
/// continues one, such as with a space.
std::string continued_text(const TextCodec& codec, const std::vector<int64_t>& prompt,
                           const std::vector<int64_t>& tokens);

/// Lets the first replica's model write texts after each test, from random streams of its own, so that the
/// training does not depend on it.
class GptSamples : public Callback {
 public:
  using Receiver = std::function<void(const SampleText&)>;
  /// `receive` gets each text on worker 0. The other arguments must outlive this object. Throws UsageError
  /// naming --sample if its text has no tokens of the model.
  GptSamples(const GptTrainOptions& options, const TextCodec& codec, Mirrored<Gpt>& model, Receiver receive);

  void on_epoch_end(FitState& state) override;

 private:
  const GptTrainOptions& options_;
  const TextCodec& codec_;
  Mirrored<Gpt>& model_;
  Receiver receive_;
  std::vector<int64_t> prompt_;
};

}  // namespace lockstep::apps
