/* Counts what an image does between two marks: a QEMU TCG plugin.
 *
 * The image stores any word to marks + 8 * id to begin the region `id` (0 to 31) and to marks + 8 * id + 4 to end it.
 * Regions may nest, overlap and repeat. When QEMU ends, one line per region that was ended at least once is written:
 *
 *     region ID count=N instructions=N loads=N stores=N stack=N
 *
 * instructions, loads and stores are sums over all repetitions; an empty region is one instruction, the store that
 * ends it. stack is the distance from stack_top down to the lowest byte stored to while the region was open, so it
 * includes the frames of the callers. What an exception pushes is not seen: keep interrupts off while measuring.
 *
 * Build:  gcc -O2 -Wall -Wextra -shared -fPIC -fvisibility=hidden region.c -o region.so
 * Use:    qemu-system-arm ... -plugin ./region.so,marks=0x2000ff00,stack_top=0x2000ff00,stack_limit=0x2000cf00,out=FILE
 *
 * Options: marks, stack_top, stack_limit (addresses, all three required), out (default: standard error), and
 * profile=FILE, which gets one line "ADDRESS COUNT" for every instruction below 256 KB that ran inside any region.
 */
#include "plugin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { REGIONS = 32, FLASH_LEN = 0x40000 };

/* Everything counted so far, or the share of one region. */
struct counts {
    uint64_t instructions, loads, stores;
};

struct region {
    bool open;
    struct counts at_begin; /* the totals when it was last begun */
    struct counts sum;      /* over its finished repetitions */
    uint64_t repetitions;
    uint64_t lowest_store; /* in the stack, while open */
};

static struct counts total;
static struct region regions[REGIONS];
static unsigned open_regions;

static uint64_t marks, stack_top, stack_limit;
static const char *out_path, *profile_path;
static uint32_t *profile; /* one counter per halfword of flash */

/* ---- while the image runs ---- */

static void on_instruction(unsigned vcpu, void *address) {
    (void)vcpu;
    total.instructions++;
    if (profile && open_regions > 0 && (uintptr_t)address < FLASH_LEN) profile[(uintptr_t)address / 2]++;
}

static void begin(struct region *region) {
    if (region->repetitions == 0 && !region->open) region->lowest_store = stack_top;
    if (!region->open) open_regions++;
    region->open = true;
    region->at_begin = total;
}

static void end(struct region *region) {
    if (!region->open) return;
    region->open = false;
    open_regions--;
    region->sum.instructions += total.instructions - region->at_begin.instructions;
    region->sum.loads += total.loads - region->at_begin.loads;
    region->sum.stores += total.stores - region->at_begin.stores;
    region->repetitions++;
}

static void on_access(unsigned vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *userdata) {
    (void)vcpu, (void)userdata;
    if (!qemu_plugin_mem_is_store(info)) {
        total.loads++;
        return;
    }
    if (address >= marks && address < marks + 8 * REGIONS) {
        struct region *region = &regions[(address - marks) / 8];
        if ((address - marks) % 8 < 4) {
            begin(region);
        } else {
            end(region);
        }
        return;
    }
    total.stores++;
    if (open_regions == 0 || address < stack_limit || address >= stack_top) return;
    for (int id = 0; id < REGIONS; id++) {
        if (regions[id].open && address < regions[id].lowest_store) regions[id].lowest_store = address;
    }
}

/* Called once per translated block: asks for the two calls above on each of its instructions. */
static void on_translation(qemu_plugin_id_t plugin, struct qemu_plugin_tb *block) {
    (void)plugin;
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        void *address = (void *)(uintptr_t)qemu_plugin_insn_vaddr(instruction);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_instruction, QEMU_PLUGIN_CB_NO_REGS, address);
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW, NULL);
    }
}

/* ---- before and after ---- */

static FILE *open_for_writing(const char *path) {
    FILE *file = fopen(path, "w");
    if (!file) fprintf(stderr, "region: %s: %s\n", path, strerror(errno));
    return file;
}

static void write_profile(void) {
    FILE *file = open_for_writing(profile_path);
    if (!file) return;
    for (uint32_t at = 0; at < FLASH_LEN; at += 2) {
        if (profile[at / 2]) fprintf(file, "%x %u\n", at, profile[at / 2]);
    }
    fclose(file);
}

static void on_exit_of_qemu(qemu_plugin_id_t plugin, void *userdata) {
    (void)plugin, (void)userdata;
    FILE *file = out_path ? open_for_writing(out_path) : stderr;
    for (int id = 0; file && id < REGIONS; id++) {
        const struct region *region = &regions[id];
        if (region->open) fprintf(stderr, "region: region %d was begun and never ended\n", id);
        if (region->repetitions == 0) continue;
        fprintf(file, "region %d count=%llu instructions=%llu loads=%llu stores=%llu stack=%llu\n", id,
                (unsigned long long)region->repetitions, (unsigned long long)region->sum.instructions,
                (unsigned long long)region->sum.loads, (unsigned long long)region->sum.stores,
                (unsigned long long)(stack_top - region->lowest_store));
    }
    if (file && file != stderr) fclose(file);
    if (profile) write_profile();
}

/* Takes one "name=value" of the command line; false if it means nothing. */
static bool set_option(const char *option) {
    static const struct {
        const char *name;
        uint64_t *address;
        const char **text;
    } options[] = {
        {"marks=", &marks, NULL},
        {"stack_top=", &stack_top, NULL},
        {"stack_limit=", &stack_limit, NULL},
        {"out=", NULL, &out_path},
        {"profile=", NULL, &profile_path},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        size_t len = strlen(options[i].name);
        if (strncmp(option, options[i].name, len) != 0) continue;
        if (options[i].text) {
            *options[i].text = strdup(option + len);
            return *options[i].text != NULL;
        }
        char *rest;
        *options[i].address = strtoull(option + len, &rest, 0);
        return option[len] != '\0' && *rest == '\0';
    }
    return false;
}

EXPORT int qemu_plugin_version = 1;

EXPORT int qemu_plugin_install(qemu_plugin_id_t plugin, const struct qemu_info *info, int argc, char **argv);

/* Anything but 0 stops QEMU before the image starts. */
int qemu_plugin_install(qemu_plugin_id_t plugin, const struct qemu_info *info, int argc, char **argv) {
    (void)info;
    for (int i = 0; i < argc; i++) {
        if (!set_option(argv[i])) {
            fprintf(stderr, "region: cannot use the option \"%s\"\n", argv[i]);
            return -1;
        }
    }
    if (marks == 0 || stack_top == 0 || stack_limit >= stack_top) {
        fprintf(stderr, "region: marks, stack_top and stack_limit (below stack_top) are required\n");
        return -1;
    }
    if (profile_path && !(profile = calloc(FLASH_LEN / 2, sizeof *profile))) {
        fprintf(stderr, "region: no memory for the profile\n");
        return -1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translation);
    qemu_plugin_register_atexit_cb(plugin, on_exit_of_qemu, NULL);
    return 0;
}
