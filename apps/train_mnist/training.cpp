#include "lockstep/apps/train_mnist/training.h"

#include <fmt/format.h>

namespace lockstep::apps {

std::string epoch_line(const EpochReport& report) {
  return fmt::format("epoch {}/{}  loss {:.4f}  accuracy {:.4f}  test accuracy {:.4f}  {:.0f} images/s",
                     report.epoch, report.epochs, report.loss, report.accuracy, report.test_accuracy,
                     report.images_per_second);
}

NumbersError loss_not_finite(int64_t epoch, int64_t step, int64_t replica, const LogicalDevice& device,
                             const TrainOptions& options, const TrainPlan& plan) {
  const std::string scaled =
      options.scale_learning_rate ? fmt::format(", scaled to {}", plan.learning_rate) : std::string();
  return NumbersError(
      fmt::format("epoch {}, step {}: expected a finite loss, but replica {} ({}) got NaN or infinity "
                  "(--learning-rate {}{}); a smaller learning rate may help",
                  epoch, step, replica, device.str(), options.learning_rate, scaled));
}

bool train(const TrainingRun& run) {
  return run.options.model == ModelKind::kSimpleCnn ? train_simple_cnn(run) : train_mobilenet_v2(run);
}

}  // namespace lockstep::apps
