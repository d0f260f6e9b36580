// The chat templates that are known, each by the hash of its text, and the named form that renders as it does. Holds no
// template. Made by tests/model/chat_template_differential.py, which compared form and template on many conversations;
// with each row, models or collections that carry it. Included by chat_template.cpp only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace entrodraft::model {

struct KnownChatTemplate {
    std::uint64_t hash; // 64-bit FNV-1a of the text's significant part
    std::size_t n_bytes;
    std::string_view form;
};

inline constexpr KnownChatTemplate kKnownChatTemplates[] = {
    {0x3dbbdd28c4670e85, 450, "chatml"}, // cognitivecomputations/dolphin-2.6-mistral-7b-dpo-laser
    {0xdaec948531d70f8f, 210, "chatml"}, // abhishek/autotrain-llama3-70b-orpo-v1
    {0x8bfd6052757eabbd, 398, "chatml"}, // unsloth chatml
    // Felladrin/Llama-68M-Chat-v1, HuggingFaceTB/SmolLM-135M-Instruct, Snowflake/snowflake-arctic-instruct
    {0x88bf4138d5c826f0, 196, "chatml"},
    {0xa41d6bae9b9141bc, 199, "chatml"}, // in llama.cpp's collection
    // TheBloke/Mistral-7B-OpenOrca-GPTQ, cognitivecomputations/dolphin-2.5-mixtral-8x7b
    {0x773d13e188afc917, 291, "chatml"},
    {0x17fde6ecda9c7c01, 294, "chatml"},     // cognitivecomputations/dolphin-2.5-mixtral-8x7b
    {0xf6904ae94ef66867, 6067, "chatml"},    // Qwen/Qwen3-Coder-30B-A3B-Instruct (minja)
    {0x317b88632f7d850d, 6210, "chatml"},    // Qwen/Qwen3-Coder-30B-A3B-Instruct
    {0x21dc9ed0659009cb, 6147, "chatml"},    // Qwen/Qwen3-Coder (llama.cpp)
    {0x467d64e3db776403, 192, "chatml"},     // tests/model/chatml.jinja
    {0x3751fe8ea48448ab, 2630, "chatml"},    // Qwen/Qwen3-4B-Instruct-2507
    {0x6026a4efc1063551, 306, "chatml-bos"}, // cognitivecomputations/dolphin-2.8-mistral-7b-v02
    {0x52642d07ab0602d8, 211, "chatml-bos"}, // internlm/internlm2-chat-1_8b, internlm/internlm2-chat-7b
    {0x89bcbd75ce6a3d28, 209, "chatml-bos"}, // NousResearch/Nous-Hermes-2-Mixtral-8x7B-DPO
    {0xc867da37c989d41f, 327, "qwen1.5"},    // Qwen/Qwen1.5-0.5B, Qwen/Qwen1.5-7B-Chat, Qwen/Qwen1.5-MoE-A2.7B
    {0x893e758f2b86d461, 443, "qwen1.5"},    // FINGU-AI/FinguAI-Chat-v1, Qwen/Qwen1.5-72B-Chat
    {0x049cd3d51562e165, 448, "qwen1.5"},    // Qwen/Qwen1.5-72B-Chat
    {0x8a87094e0e1e24c5, 328, "qwen2"},      // Qwen/Qwen1.5-4B-Chat, Qwen/Qwen2-7B-Instruct
    {0xb08024a98ecbac6e, 1281, "qwen2"},     // Qwen/Qwen2.5-Omni-3B
    {0x71242f76359e71e8, 1017, "qwen2"},     // Qwen/Qwen2.5-VL-3B-Instruct, Qwen/Qwen2.5-VL-7B-Instruct
    {0x16bc91fc7006a16d, 2426, "qwen2"},     // Qwen/Qwen2.5-7B-Instruct-1M
    {0xefc577352ade125d, 2558, "qwen2.5"},   // chujiezheng/chat_templates qwen2.5-instruct
    // Qwen/Qwen2.5-3B-Instruct, Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen2.5-Instruct
    {0xe642ce246d7f2e3d, 2506, "qwen2.5"},
    {0xfbed2ee177a43d8d, 2512, "qwen2.5-math"},   // Qwen/Qwen2.5-Math-7B-Instruct
    {0x9cdcd79e2ef275aa, 4717, "qwen3"},          // unsloth Qwen3
    {0xb54ff7c6019392bd, 4905, "qwen3"},          // Qwen/Qwen3 GGUF
    {0x959a4551391a6549, 4168, "qwen3"},          // Qwen/Qwen3, Qwen/Qwen3-1.7B, Qwen/Qwen3-4B
    {0x2bfdb7aa9754484e, 4116, "qwen3"},          // Qwen/Qwen3-0.6B, Qwen/Qwen3-8B-Base
    {0x3da2a7a654434111, 4047, "qwen3-thinking"}, // unsloth Qwen3-Thinking
    {0xcd0d41a64dfce181, 4049, "qwen3-thinking"}, // Qwen/Qwen3-4B-Thinking-2507
    {0x32334d10195d5f66, 5198, "qwen3-thinking"}, // Qwen/Qwen3-VL-4B-Thinking
    {0x45ec583d4d25bc3a, 368, "smollm2"},         // HuggingFaceTB/SmolLM2-135M-Instruct
    {0x2bb17d55e56025e2, 1072, "llama-2"},        // transformers' default for Llama
    {0x54f74c2db3c2b5b9, 813, "llama-2"},         // codellama/CodeLlama-34b-Instruct-hf
    {0xf344eecf1bd3a427, 815, "llama-2"},         // meta-llama/Llama-2-70b-chat-hf, meta-llama/Llama-2-7b-chat-hf
    {0xe38037dc7769ab03, 509, "llama-3"},         // THUDM/cogvlm2-llama3-chat-19B
    {0x8cd8b2dba5919cff, 484, "llama-3"},         // MLP-KTLim/llama-3-Korean-Bllossom-8B
    {0x0e60067a5537498e, 389, "llama-3"},         // meta-llama/Meta-Llama-3-8B-Instruct
    // BAAI/Aquila2-7B, casperhansen/llama-3-70b-instruct-awq, meta-llama/Meta-Llama-3-8B-Instruct (first)
    {0x74891e390e614ae2, 348, "llama-3"},
    {0x368f4c34b8554414, 3826, "llama-3.1"}, // meta-llama/Llama-3.2-3B-Instruct
    // meta-llama/Llama-3.1-8B-Instruct, meta-llama/Llama-3.3-70B-Instruct, meta-llama/Meta-Llama-3.1-8B-Instruct
    {0xcc0368e1ffb6b958, 4613, "llama-3.1"},
    {0xca7ec126f9810e18, 518, "mistral-no-system"}, // abacusai/Smaug-Mixtral-v0.1
    // TheBloke/Mixtral-8x7B-Instruct-v0.1-GPTQ, mistralai/Mistral-7B-Instruct-v0.2,
    // mistralai/Mixtral-8x7B-Instruct-v0.1
    {0x8c734b90b4f8d84d, 470, "mistral-no-system"},
    // TheBloke/Mistral-7B-Instruct-v0.1-GPTQ, mistralai/Mistral-7B-Instruct-v0.1
    {0xc730acc029ce6ee0, 477, "mistral-no-system-space"},
    // mistralai/Mistral-7B-Instruct-v0.1, mistralai/Mistral-7B-Instruct-v0.2 (2024),
    // mistralai/Mixtral-8x7B-Instruct-v0.1
    {0x46eac0bf5c765c47, 1057, "mistral-v1"},
    // mistralai/Mistral-7B-Instruct-v0.3, mistralai/Mistral-Large-Instruct-2407
    {0x2487e6e79d6345cf, 3958, "mistral-v3"},
    {0x20783e9d94168233, 3944, "mistral-nemo"}, // mistralai/Mistral-Nemo-Instruct-2407
    {0xc134bf40d6f56d76, 3777, "mistral-nemo"}, // mistralai/Mistral-Nemo-Instruct-2407
    {0xa46b448e80757f75, 2837, "mistral-nemo"}, // mistralai/Mistral-Nemo-Instruct-2407 (mistral.rs)
    {0xe4a9cc594604808a, 423, "mistral-v7"},    // mistralai/Mistral-Large-Instruct-2411
    {0x5c10ee65212d93b3, 591, "gemma"},         // google/gemma-2-2b-it, google/gemma-2b, google/gemma-2b-it
    {0xe588cc2356832fab, 576, "gemma-no-bos"},  // yam-peleg/Hebrew-Gemma-11B-V2
    {0x690954969ec87269, 579, "gemma-no-bos"},  // google/gemma-7b-it (as llama.cpp tests it)
    // HuggingFaceH4/zephyr-7b-beta, TinyLlama/TinyLlama-1.1B-Chat-v1.0, TinyLlama/TinyLlama-1.1B-Chat-v1.0,
    // stabilityai/stablelm-zephyr-3b
    {0xcd8b49000db02c2c, 410, "zephyr"},
    {0x3ef9c3bc84dbf4a5, 858, "zephyr"}, // ghost-x/ghost-7b-alpha
    // HuggingFaceH4/zephyr-7b-beta (add_generation_prompt=false), HuggingFaceH4/zephyr-7b-beta (as
    // text-generation-inference tests it)
    {0x0af6ea9cf9896e56, 413, "zephyr"},
    {0x4f538ea416e097dd, 375, "zephyr"}, // unsloth zephyr
    {0xecebdb26677c663d, 407, "phi-3"},  // microsoft/Phi-3-mini-128k-instruct, microsoft/Phi-3-mini-4k-instruct
    {0x31ef9b2dacd0efb6, 371, "phi-3"},  // unsloth phi-3
    // microsoft/Phi-3-vision-128k-instruct, microsoft/Phi-3.5-vision-instruct
    {0x3878e3fa2ade824a, 220, "phi-3"},
    {0x475fd3e16d05c1af, 218, "phi-3-bos"}, // microsoft/Phi-3-small-8k-instruct
    {0xcf278cde387a54c8, 430, "phi-3.5"},   // microsoft/Phi-3.5-mini-instruct
    // microsoft/Phi-3-medium-128k-instruct, microsoft/Phi-3-medium-4k-instruct
    {0x6057775af4d6feb9, 254, "phi-3-first"},
    // added-tokens, microsoft/Phi-3-mini-4k-instruct, microsoft/Phi-3-mini-4k-instruct (first)
    {0x4ebae769b67b72f1, 269, "phi-3-first-bos"},
    {0x9acdd6b945e8e7f9, 462, "phi-4"},       // microsoft/phi-4
    {0xa0d463619fe96578, 377, "phi-4-first"}, // microsoft/phi-4 (first)
    // microsoft/Phi-4-mini-instruct, microsoft/Phi-4-multimodal-instruct
    {0xd6a2d985b28ca308, 423, "phi-4-mini"},
    {0x1ff3f9f9f162db44, 802, "falcon-instruct"}, // tiiuae/falcon-7b-instruct
    {0xb4790feb9157bf2b, 340, "falcon-chat"},     // tiiuae/falcon-180B-chat
    {0xad04115bf84a78dc, 2092, "falcon-3"},       // tiiuae/Falcon3-3B-Instruct
    // deepseek-ai/DeepSeek-V2, deepseek-ai/DeepSeek-V2-Lite-Chat, deepseek-ai/deepseek-llm-7b-chat
    {0x5111253f4aa4a502, 459, "deepseek-llm"},
    {0x446f9fd78fcb0756, 463, "deepseek-llm"}, // deepseek-ai/deepseek-llm-7b-chat
    // deepseek-ai/DeepSeek-R1-Distill-Llama-8B, deepseek-ai/DeepSeek-R1-Distill-Qwen-32B,
    // deepseek-ai/DeepSeek-R1-Distill-Llama-8B, deepseek-ai/DeepSeek-R1-Distill-Qwen-7B
    {0x845fdf813c637ee2, 2246, "deepseek-r1"},
    {0x4526f885d718fa95, 2765, "deepseek-r1"},          // deepseek-ai/DeepSeek-R1
    {0x731e2d647d2bf911, 2478, "deepseek-r1"},          // deepseek-ai/DeepSeek-R1-Distill-Llama-8B (llama.cpp)
    {0xb9eb54d150716a7d, 2756, "deepseek-r1-no-think"}, // deepseek-ai/DeepSeek-R1 (2025)
    {0x51c8c94545ac4017, 222, "openchat"},              // openchat/openchat-3.5-0106
    {0xc0bb5de69aeaa2a7, 409, "solar"},                 // upstage/SOLAR-10.7B-Instruct-v1.0
};

} // namespace entrodraft::model
