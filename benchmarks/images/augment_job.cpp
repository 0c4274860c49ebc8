// augment_job <threads>: changes batches of square float32 RGB images at random. Each line of the standard
// input is one measurement: changes, pixels, images and seconds. Changes are a comma-separated list of crop,
// flip, rotate, colour and mixup. Answers each with the images per second as JSON: of the processor's time on
// one thread, which other processes do not lengthen, and of the clock's on several.
#include <torch/torch.h>

#include <chrono>
#include <ctime>
#include <iostream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/images/image_augmentation.h"
#include "lockstep/datasets/images/mixup.h"

namespace lockstep::benchmarks {
namespace {

struct Changes {
  ImageAugmentation images;
  Mixup mixup;
};

Changes changes_of(const std::string& names) {
  const auto has = [&](const std::string& name) {
    return ("," + names + ",").find("," + name + ",") != std::string::npos;
  };
  Changes changes{.images = {.seed = 1}, .mixup = {.num_classes = 1000, .seed = 1}};
  if (has("crop")) changes.images.crop_padding = 4;
  changes.images.flip = has("flip");
  if (has("rotate")) changes.images.rotation = 15;
  if (has("colour")) {
    changes.images.brightness = changes.images.contrast = changes.images.saturation = 0.4;
    changes.images.hue = 0.1;
  }
  if (has("mixup")) changes.mixup.alpha = 1;
  if (!changes.images.is_on() && !changes.mixup.is_on())
    throw std::invalid_argument("expected changes, but got '" + names + "'");
  return changes;
}

double seconds_of(int threads) {
  if (threads == 1) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double images_per_second(const Changes& changes, int64_t pixels, int64_t count, double seconds, int threads) {
  // As ImageTransform returns them.
  const auto images = torch::rand({count, 3, pixels, pixels}).contiguous(torch::MemoryFormat::ChannelsLast);
  const auto classes = torch::randint(0, 1000, {count}, torch::kLong);
  std::vector<size_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), size_t{0});
  // Each image's partner is the one before it, as torchvision's are.
  const auto rolled = [&](const torch::Tensor& values) {
    return torch::cat({values.narrow(0, count - 1, 1), values.narrow(0, 0, count - 1)});
  };
  const auto change = [&](int64_t epoch) {
    torch::data::Example<> examples{changes.images(images, indices, epoch), classes};
    if (!changes.mixup.is_on()) return examples;
    return changes.mixup.mix(examples, {rolled(examples.data), rolled(classes)},
                             changes.mixup.weights(indices, epoch));
  };
  int64_t epoch = 0;
  change(epoch++);
  const double begin = seconds_of(threads);
  double taken = 0;
  while (taken < seconds) {
    change(epoch++);
    taken = seconds_of(threads) - begin;
  }
  return static_cast<double>((epoch - 1) * count) / taken;
}

int measure(int threads) {
  torch::set_num_threads(threads);
  torch::manual_seed(1);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string names;
    int64_t pixels = 0, count = 0;
    double seconds = 0;
    if (!(words >> names >> pixels >> count >> seconds))
      throw std::invalid_argument("expected changes, pixels, images and seconds, but got '" + line + "'");
    std::cout << R"({"images_per_second": )"
              << images_per_second(changes_of(names), pixels, count, seconds, threads) << '}' << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "expected a number of threads\n";
    return 2;
  }
  return lockstep::benchmarks::run_program([&] { return lockstep::benchmarks::measure(std::stoi(argv[1])); });
}
