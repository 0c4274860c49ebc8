#include "lockstep/apps/train_ctr/ctr_input.h"

#include <algorithm>

namespace lockstep::apps {

void ReadTotals::add(const ReadTimes& times, int sign) {
  store += sign * times.seconds(ReadPart::kStore);
  decode += sign * times.seconds(ReadPart::kDecode);
  wait += sign * times.seconds(ReadPart::kWait);
  store_bytes += sign * times.store_bytes();
  rows += sign * times.decoded_rows();
  bytes += sign * times.decoded_bytes();
}

InputProfile ctr_input_profile(const InputTimes& times, const std::optional<ReadTotals>& reads,
                               const TrainedSteps& steps) {
  InputProfile profile = input_profile(times, "rows", steps);
  if (!reads) return profile;
  for (InputStage& stage : profile.stages) {
    if (stage.name != "dataset") continue;
    stage.name = "gather";
    stage.seconds = std::max(0.0, stage.seconds - reads->wait);
  }
  profile.waited_for_ahead = reads->wait;
  profile.ahead = {
      {.name = "store", .seconds = reads->store, .count = reads->rows, .bytes = reads->store_bytes},
      {.name = "decode", .seconds = reads->decode, .count = reads->rows, .bytes = reads->bytes}};
  return profile;
}

}  // namespace lockstep::apps
