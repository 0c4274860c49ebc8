#include "lockstep/apps/train_mnist/epoch_report.h"

#include <fmt/format.h>

namespace lockstep::apps {

std::string epoch_line(const EpochReport& report) {
  return fmt::format("epoch {}/{}  loss {:.4f}  accuracy {:.4f}  test accuracy {:.4f}  {:.0f} images/s",
                     report.epoch, report.epochs, report.loss, report.accuracy, report.test_accuracy,
                     report.images_per_second);
}

}  // namespace lockstep::apps
