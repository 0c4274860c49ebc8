#include "lockstep/apps/train_images/data/data_warnings.h"

#include <c10/util/StringUtil.h>

#include <utility>
#include <variant>

namespace lockstep::apps {

std::vector<std::string> data_warnings(const DataLocation& location, const ImageData& data) {
  std::vector<std::string> warnings;
  const std::pair<const char*, const ImageDataset*> parts[] = {{"train", &data.train}, {"test", &data.test}};
  for (const auto& [part, dataset] : parts) {
    const auto* folder = std::get_if<ImageFolder>(dataset);
    if (folder == nullptr || folder->ignored_files().names.empty()) continue;
    warnings.push_back(c10::str(location.path, "/", part, ": not used: ", folder->ignored_files().describe(),
                                "; only .png, .jpg, .jpeg and .webp files directly in the folder of a class "
                                "are"));
  }
  if (const auto* train = std::get_if<ImageFolder>(&data.train); train != nullptr && data.num_classes == 1) {
    const std::string folder = location.path + "/train";
    warnings.push_back(
        c10::str(folder, ": expected one folder of images for each class, but got one folder, ",
                 train->classes().front(),
                 ": with a single class there is nothing to learn. Sort the images into folders "
                 "such as ",
                 folder, "/cat and ", folder, "/dog"));
  }
  return warnings;
}

}  // namespace lockstep::apps
