#include "lockstep/apps/train_images/options/augmentation_choice.h"

#include <gtest/gtest.h>

#include "lockstep/apps/shared/command_line/usage_error.h"
#include "lockstep/apps/train_images/options/command_line.h"

namespace lockstep::apps {
namespace {

using Flags = std::vector<std::string>;

AugmentationChoice choice_of(const std::string& text, const Flags& more = {"--model", "mobilenet_v2"}) {
  Flags flags{"--augment", text};
  flags.insert(flags.end(), more.begin(), more.end());
  return parse_command_line(flags, {"default"}).options.augment;
}

std::string refusal_of_augment(const std::string& text, const Flags& more = {"--model", "mobilenet_v2"}) {
  try {
    choice_of(text, more);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(AugmentationChoice, IsAListOfChangesInAnyOrder) {
  EXPECT_EQ(choice_of("crop=4,flip"), (AugmentationChoice{.crop = 4, .flip = true}));
  EXPECT_EQ(choice_of("flip,crop=4"), choice_of("crop=4,flip"));
  EXPECT_EQ(
      choice_of("mixup=0.2,hue=0.05,saturation=0.3,contrast=0.2,brightness=1,rotate=180"),
      (AugmentationChoice{
          .rotate = 180, .brightness = 1, .contrast = 0.2, .saturation = 0.3, .hue = 0.05, .mixup = 0.2}));
  EXPECT_EQ(choice_of("none"), AugmentationChoice{});
  EXPECT_EQ(parse_command_line({}, {"default"}).options.augment, AugmentationChoice{});
}

TEST(AugmentationChoice, IsWrittenAsItIsRead) {
  EXPECT_EQ(augmentation_text({}), "none");
  for (const std::string text :
       {"crop=4,flip", "flip", "rotate=12.5,brightness=0.1,contrast=1e-07,saturation=0.3,hue=0.5,mixup=100"})
    EXPECT_EQ(augmentation_text(choice_of(text)), text);
}

TEST(AugmentationChoice, NamesTheChangeThatIsWrong) {
  const std::string all =
      "--augment: expected none, or a list of crop, flip, rotate, brightness, contrast, saturation, hue, "
      "mixup "
      "with commas between them, but got ";
  EXPECT_EQ(refusal_of_augment("crop=4,flop"), all + "'flop' (did you mean flip?)");
  EXPECT_EQ(refusal_of_augment(""), all + "''");
  EXPECT_EQ(refusal_of_augment("flip,"), all + "''");
  EXPECT_EQ(refusal_of_augment("flip,none"), all + "'none'");
  EXPECT_EQ(refusal_of_augment("crop=x"),
            "--augment: crop: expected a whole number from 1 to 2048, but got 'x'");
  EXPECT_EQ(refusal_of_augment("crop"),
            "--augment: crop: expected a whole number from 1 to 2048, but got ''");
  EXPECT_EQ(refusal_of_augment("flip=1"), "--augment: flip: expected no value, but got 'flip=1'");
  EXPECT_EQ(refusal_of_augment("rotate=181"),
            "--augment: rotate: expected a number above 0 and at most 180, but got '181'");
  EXPECT_EQ(refusal_of_augment("hue=nan"),
            "--augment: hue: expected a number above 0 and at most 0.5, but got 'nan'");
  EXPECT_EQ(refusal_of_augment("brightness=-0.1"),
            "--augment: brightness: expected a number above 0 and at most 1, but got '-0.1'");
  EXPECT_EQ(refusal_of_augment("mixup=1e-310"),
            "--augment: mixup: expected a number from 1e-6 to 1e6, but got '1e-310'");
  EXPECT_EQ(refusal_of_augment("mixup=0"), "--augment: mixup: expected a number above 0, but got '0'");
  EXPECT_EQ(refusal_of_augment("flip,flip"), "--augment: expected flip once, but got 'flip,flip'");
}

TEST(AugmentationChoice, FitsTheModelsImages) {
  EXPECT_EQ(refusal_of_augment("crop=28", {}),
            "--augment crop=28: expected a crop of less than the 28 pixels of --image-size");
  EXPECT_EQ(choice_of("crop=27", {}).crop, 27);
  EXPECT_EQ(
      refusal_of_augment("flip,hue=0.1", {}),
      "--augment flip,hue=0.1: expected saturation and hue with --model mobilenet_v2 only, as simple_cnn "
      "sees grey images");
  EXPECT_EQ(choice_of("contrast=0.5", {}).contrast, 0.5);
}

}  // namespace
}  // namespace lockstep::apps
