#include "lockstep/apps/train_mnist/training_loop.h"
#include "lockstep/models/simple_cnn.h"

namespace lockstep::apps {

History train_simple_cnn(const TrainingRun& run) {
  const SimpleCnnOptions options{.num_classes = run.data.num_classes,
                                 .in_channels = channels_of(run.options.model),
                                 .image_size = run.options.image_size};
  return train_model<SimpleCnn>(run, [&](ReplicaContext&) { return SimpleCnn(options); });
}

}  // namespace lockstep::apps
