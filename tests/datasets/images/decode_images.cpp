// decode_images <folder> <out>: decodes every file of a folder for a test that compares the images with
// another library's. Writes <out>/<name>.stored, and <out>/<name>.upright with the EXIF orientation applied:
// height, width and channels in a line, then the pixels. A file that cannot be decoded becomes
// <out>/<name>.error.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/files/internal/file_bytes.h"
#include "lockstep/datasets/images/internal/decoded_image.h"
#include "lockstep/datasets/images/internal/exif_orientation.h"

namespace lockstep {
namespace {

void write(const std::string& path, const DecodedImage& image) {
  std::ofstream file(path, std::ios::binary);
  file << image.height << ' ' << image.width << ' ' << image.channels << '\n';
  file.write(reinterpret_cast<const char*>(image.pixels.data()),
             static_cast<std::streamsize>(image.pixels.size()));
}

void decode_file(const std::string& path, const std::string& out) {
  constexpr uint64_t kMaxBytes = uint64_t{64} << 20;
  try {
    const auto bytes = read_file(path, kMaxBytes);
    const DecodedImage image = decode_image(bytes, path);
    write(out + ".stored", image);
    write(out + ".upright", make_upright(image, exif_orientation(bytes)));
  } catch (const DataError& error) {
    std::ofstream(out + ".error") << error.what() << '\n';
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "expected a folder of images and a folder for the results\n";
    return 2;
  }
  namespace fs = std::filesystem;
  for (const auto& file : fs::directory_iterator(argv[1])) {
    lockstep::decode_file(file.path().string(), (fs::path(argv[2]) / file.path().filename()).string());
  }
}
