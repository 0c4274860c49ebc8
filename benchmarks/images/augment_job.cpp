// augment_job <changes> <pixels> <images> <seconds>: changes a batch of square float32 RGB images at random,
// again and again for so long, on one thread. Changes are a comma-separated list of crop, flip, rotate and
// colour. Prints the images per second of the processor's time, which other processes do not lengthen, as
// JSON.
#include <torch/torch.h>

#include <ctime>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/benchmarks/run_program.h"
#include "lockstep/datasets/images/image_augmentation.h"

namespace lockstep::benchmarks {
namespace {

ImageAugmentation augmentation_of(const std::string& changes) {
  const auto has = [&](const std::string& name) {
    return ("," + changes + ",").find("," + name + ",") != std::string::npos;
  };
  ImageAugmentation augment{.seed = 1};
  if (has("crop")) augment.crop_padding = 4;
  augment.flip = has("flip");
  if (has("rotate")) augment.rotation = 15;
  if (has("colour")) {
    augment.brightness = augment.contrast = augment.saturation = 0.4;
    augment.hue = 0.1;
  }
  if (!augment.is_on()) throw std::invalid_argument("expected changes, but got '" + changes + "'");
  return augment;
}

int measure(const ImageAugmentation& augment, int64_t pixels, int64_t count, double seconds) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  // As ImageTransform returns them.
  const auto images = torch::rand({count, 3, pixels, pixels}).contiguous(torch::MemoryFormat::ChannelsLast);
  std::vector<size_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), size_t{0});
  int64_t epoch = 0;
  augment(images, indices, epoch++);
  const auto begin = std::clock();
  double taken = 0;
  while (taken < seconds) {
    augment(images, indices, epoch++);
    taken = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  }
  std::cout << R"({"images_per_second": )" << static_cast<double>((epoch - 1) * count) / taken << "}\n";
  return 0;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc != 5) {
    std::cerr << "expected changes, pixels, images and seconds\n";
    return 2;
  }
  return lockstep::benchmarks::run_program([&] {
    return lockstep::benchmarks::measure(lockstep::benchmarks::augmentation_of(argv[1]), std::stol(argv[2]),
                                         std::stol(argv[3]), std::stod(argv[4]));
  });
}
